// The queues of the environment: live numbers from the stream, merged with their history.

import { useEffect, useMemo, useState } from "preact/hooks";
import { listen } from "../api/live";
import { get } from "../api/http";
import type { QueueNow, QueueGlance, QueueRow } from "../api/types";
import { usePoll } from "./poll";
import { environment } from "./session";

type LiveEvent = { changed: QueueNow[]; removed: string[] };

export function useLiveQueues(): Map<string, QueueNow> | null {
  const scope = environment.value!;
  const key = JSON.stringify(scope);
  const [queues, setQueues] = useState<Map<string, QueueNow> | null>(null);
  useEffect(() => {
    setQueues(null);
    return listen<LiveEvent>("/api/v1/live", (event, data) => {
      setQueues((old) => {
        const next = new Map(event === "snapshot" ? [] : old);
        for (const queue of data.changed) next.set(queue.name, queue);
        for (const name of data.removed) next.delete(name);
        return next;
      });
    });
  }, [key]);
  return queues;
}

export function useQueueRows(): { rows: QueueRow[] | null; totals: QueueGlance[] | null } {
  const scope = environment.value!;
  const live = useLiveQueues();
  const path = `/api/v1/environments/${encodeURIComponent(scope.environment)}/queue-overview`;
  const history = usePoll(() => get<{ items: QueueGlance[] }>(path, { period: "30m" }), [path], 10_000);
  const rows = useMemo(() => (live ? merge(live, history.data?.items ?? []) : null), [live, history.data]);
  return { rows, totals: history.data?.items ?? null };
}

function merge(live: Map<string, QueueNow>, history: QueueGlance[]): QueueRow[] {
  const past = new Map(history.map((row) => [row.queue, row]));
  return [...live.values()].map((now) => {
    const before = past.get(now.name);
    return {
      ...now,
      spark: before?.depth ?? [],
      p95_ms: before?.p95_ms ?? null,
      error_rate: before?.error_rate ?? null,
      drain_ms: before?.drain_ms ?? null,
      growing: before ? grows(before) : false,
    };
  });
}

function grows({ counters }: QueueGlance): boolean {
  return counters.enqueued > counters.acked + counters.dead + counters.expired + counters.cancelled;
}
