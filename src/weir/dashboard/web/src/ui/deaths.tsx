// Deaths over time: of one queue, or of the whole environment.

import { useMemo } from "preact/hooks";
import { get } from "../api/http";
import type { Series, Values } from "../api/types";
import { amount, count } from "../lib/format";
import { useMarks } from "../state/marks";
import { usePoll } from "../state/poll";
import { environment } from "../state/session";
import { Chart } from "./chart";
import { currentRange, PeriodPicker, zoomTo } from "./period";

function total(values: Values): number {
  return values.reduce<number>((sum, value) => sum + (value ?? 0), 0);
}

export function Deaths({ queue }: { queue: string }) {
  const range = currentRange();
  const key = JSON.stringify(range);
  const path = queue ? `/api/v1/queues/${encodeURIComponent(queue)}/metrics` : `/api/v1/environments/${encodeURIComponent(environment.value!.environment)}/queue-metrics`;
  useMarks(range, queue || undefined);
  const series = usePoll(() => get<Series>(path, { ...range, format: "columns" }), [path, key], range.from ? 0 : 10_000);
  const lines = useMemo(() => {
    const failures = series.data?.columns.failures;
    return failures
      ? [
          { label: "died", tone: 3, values: failures.dlq },
          { label: "expired", tone: 5, values: failures.ttl_expired },
        ]
      : [];
  }, [series.data]);
  // A queue that only Redis knows so far has no history.
  if (!series.data) return null;
  const { time_ms: times, kind: kinds, failures } = series.data.columns;
  return (
    <section class="panel" aria-label="Deaths over time">
      <div class="page-head">
        <h2>
          {amount(total(failures.dlq), "death")}
          {total(failures.ttl_expired) > 0 && `, ${count(total(failures.ttl_expired))} expired`} in this period
        </h2>
        <PeriodPicker />
      </div>
      <Chart title="Deaths" lines={lines} format={count} times={times} kinds={kinds} onZoom={zoomTo} height={140} />
    </section>
  );
}
