// The alerts that fire now: null if they cannot be read, undefined until they are.

import type { Alert } from "../api/types";
import { useApi } from "./api";
import { usePoll } from "./poll";

export function useFiring(everyMs: number): Alert[] | null | undefined {
  const { get } = useApi();
  const { data, error } = usePoll(() => get<{ items: Alert[] }>("/api/v1/alerts", { state: "active" }), [], everyMs);
  return error ? null : data?.items;
}
