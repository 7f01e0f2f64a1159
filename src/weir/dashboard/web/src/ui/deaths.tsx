// Deaths over time: of one queue, or of the whole environment.

import { useMemo } from "preact/hooks";
import type { Series, Values } from "../api/types";
import { amount, count } from "../lib/format";
import { useApi } from "../state/api";
import { useMarks } from "../state/marks";
import { usePoll } from "../state/poll";
import { environment } from "../state/session";
import { Chart } from "./chart";
import { currentRange, PeriodPicker, zoomTo } from "./period";

/** One value for "no points yet", so that a chart is not drawn again at each poll. */
const NONE: never[] = [];

/** A sum in words; of parts that are unknown nobody says that nothing happened in them. */
function total(values: Values): string {
  const known = values.filter((value) => value !== null);
  const sum = known.reduce((all, value) => all + value, 0);
  if (known.length === values.length) return amount(sum, "death");
  return known.length ? `At least ${amount(sum, "death")}` : "Deaths: not known";
}

function sum(values: Values): number {
  return values.reduce<number>((all, value) => all + (value ?? 0), 0);
}

export function Deaths({ queue }: { queue: string }) {
  const { get } = useApi();
  const range = currentRange();
  const key = JSON.stringify(range);
  const path = queue ? `/api/v1/queues/${encodeURIComponent(queue)}/metrics` : `/api/v1/environments/${encodeURIComponent(environment.value!.environment)}/queue-metrics`;
  useMarks(range, queue || undefined);
  const series = usePoll(() => get<Series>(path, { ...range, format: "columns" }), [path, key], range.from ? 0 : 10_000);
  const columns = series.data?.columns;
  const failures = columns?.failures;
  const lines = useMemo(
    () => [
      { label: "died", tone: 3, values: failures?.dlq ?? NONE },
      { label: "expired", tone: 5, values: failures?.ttl_expired ?? NONE },
    ],
    [failures],
  );
  // A queue that only Redis knows so far has no history.
  if (!columns && !series.loading) return null;
  return (
    <section class="panel" aria-label="Deaths over time">
      <div class="page-head">
        <h2>
          {failures ? total(failures.dlq) : "Deaths"}
          {failures && sum(failures.ttl_expired) > 0 && `, ${count(sum(failures.ttl_expired))} expired`} in this period
        </h2>
        <PeriodPicker />
      </div>
      {/* An empty chart keeps the place, so that the page below does not jump when the figures arrive. */}
      <Chart title="Deaths" lines={lines} format={count} times={columns?.time_ms ?? NONE} kinds={columns?.kind ?? NONE} onZoom={zoomTo} height={140} />
    </section>
  );
}
