// The marks on every chart of the page: alerts, annotations, applied specs, pauses and gaps.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Mark } from "../api/types";
import type { Range } from "../ui/period";
import { useApi } from "./api";
import { usePoll } from "./poll";

export const marks = signal<Mark[]>([]);

/** Fetch the marks of a range for all charts of this page, oldest first. */
export function useMarks(range: Range, queue?: string): { found: Mark[]; refresh: () => void } {
  const { get } = useApi();
  const key = JSON.stringify([range, queue]);
  const polled = usePoll(() => get<{ items: Mark[] }>("/api/v1/marks", { ...range, queue }), [key], range.from ? 0 : 10_000);
  const found = polled.data?.items;
  useEffect(() => {
    marks.value = found ? [...found].reverse() : [];
  }, [found]);
  useEffect(() => () => void (marks.value = []), []);
  return { found: marks.value, refresh: polled.refresh };
}
