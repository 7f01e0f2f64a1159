// The queues of the environment: live numbers from the stream, merged with their history.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Problem } from "../api/http";
import { listen } from "../api/live";
import type { QueueNow, QueueGlance, QueueRow } from "../api/types";
import { useApi } from "./api";
import { usePoll } from "./poll";
import { stale } from "./stale";

type LiveEvent = { changed: QueueNow[]; removed: string[] };
type Live = { queues: Map<string, QueueNow> | null; problem: Problem | null };

function useLiveQueues(): Live {
  const api = useApi();
  const [queues, setQueues] = useState<Live["queues"]>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    const source = {};
    const stop = listen<LiveEvent>(api, "/api/v1/live", {
      onProblem: (found) => {
        setProblem(found);
        if (found) stale.fail(source);
        else stale.succeed(source);
      },
      onEvent: (event, data) =>
        setQueues((old) => {
          const next = new Map(event === "snapshot" ? [] : old);
          for (const queue of data.changed) next.set(queue.name, queue);
          for (const name of data.removed) next.delete(name);
          return next;
        }),
    });
    return () => {
      stop();
      stale.succeed(source);
    };
  }, [api]);
  return { queues, problem };
}

/** The rows, and why they are not those of this moment. */
export function useQueueRows(): { rows: QueueRow[] | null; totals: QueueGlance[] | null; problem: Problem | null } {
  const { get, scope } = useApi();
  const { queues, problem } = useLiveQueues();
  const path = `/api/v1/environments/${encodeURIComponent(scope!.environment)}/queue-overview`;
  const history = usePoll(() => get<{ items: QueueGlance[] }>(path, { period: "30m" }), [path], 10_000);
  const rows = useMemo(() => (queues ? merge(queues, history.data?.items ?? []) : null), [queues, history.data]);
  return { rows, totals: history.data?.items ?? null, problem };
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
