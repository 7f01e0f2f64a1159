// Six charts of a queue, with the same period of an earlier day drawn behind.

import { useMemo } from "preact/hooks";
import type { Series, Values } from "../api/types";
import { under, type Earlier } from "../lib/compare";
import { count, duration, moment, rate } from "../lib/format";
import { bandOf, lastMaximumOnly, type Spread } from "../ui/band";
import { Chart, type Line } from "../ui/chart";
import { zoomTo } from "../ui/period";

const SHOWN_GAPS = 3;

type Pick = (series: Series) => Values;

const depth: Pick = ({ columns }) => bandOf(columns.queue_depth).values;
const p95: Pick = ({ columns }) => columns.latency.p95_ms;
const enqueued: Pick = (series) => perSecond(series, series.columns.throughput.enqueued);

/** Counts per second; not of the newest bucket while it goes on, because nobody knows yet what will be in it. */
function perSecond({ bucket_ms, columns: { time_ms } }: Series, counts: Values): Values {
  const goesOn = (time_ms.at(-1) ?? 0) + bucket_ms > Date.now();
  return counts.map((value, i) => (value == null || (goesOn && i === counts.length - 1) ? null : (value * 1000) / bucket_ms));
}

export function Charts({ series, before }: { series: Series; before: Earlier | null }) {
  const { time_ms: times, kind: kinds } = series.columns;
  const shared = { times, kinds, onZoom: zoomTo };
  const lines = useMemo(() => linesOf(series, before), [series, before?.series, before?.days]);
  const maximumOnly = lastMaximumOnly(times, series.columns.queue_depth);
  const unbounded = series.percentile_sketches.filter((part) => part.sketch !== "ddsketch").at(-1);
  return (
    <>
      <div class="charts">
        <Chart title="Depth" lines={lines.depth} format={count} {...shared} />
        <Chart title="Throughput" lines={lines.throughput} format={rate} {...shared} />
        <Chart title="Wait" lines={lines.wait} format={duration} {...shared} />
        <Chart title="Concurrency against limit" lines={lines.concurrency} format={count} {...shared} />
        <Chart title="Oldest message" lines={lines.age} format={duration} {...shared} />
        <Chart title="Failures" lines={lines.failures} format={count} {...shared} />
      </div>
      <p class="legend">
        Each point covers {duration(series.bucket_ms)}: the band goes from the lowest to the highest value in it, the line is the mean. Tinted parts carry the last known value; hatched parts are unknown. Drag over a chart to zoom.
        {maximumOnly !== null && ` Points until ${moment(maximumOnly + series.bucket_ms)} come from an earlier release, and only their highest value is known.`}
        {unbounded && ` Percentiles until ${moment(unbounded.end)} come from an earlier release, whose error has no bound.`}
      </p>
      {series.unknown.length > 0 && (
        <ul class="legend" aria-label="Why parts are unknown">
          {series.unknown.slice(-SHOWN_GAPS).map((span) => <li key={span.start}>{span.reason}</li>)}
        </ul>
      )}
    </>
  );
}

function linesOf(series: Series, before: Earlier | null) {
  const { throughput, latency, concurrency, failures, time_ms } = series.columns;
  const line = (label: string, tone: number, values: Values, dashed = false): Line => ({ label, tone, dashed, values });
  const level = (label: string, tone: number, spread: Spread): Line => ({ label, tone, ...bandOf(spread) });
  const past = (pick: Pick): Line[] => (before ? [line(before.label, 5, under(before, pick(before.series), time_ms), true)] : []);
  return {
    depth: [level("depth", 1, series.columns.queue_depth), ...past(depth)],
    throughput: [
      line("in", 1, enqueued(series)),
      line("out", 2, perSecond(series, throughput.dequeued)),
      line("done", 4, perSecond(series, throughput.completed)),
      ...(throughput.cancelled.some((value) => value) ? [line("cancelled", 3, perSecond(series, throughput.cancelled))] : []),
      ...past(enqueued),
    ],
    wait: [line("p50", 2, latency.p50_ms), line("p95", 1, latency.p95_ms), line("p99", 3, latency.p99_ms), ...past(p95)],
    concurrency: [level("running", 1, concurrency), line("limit", 3, concurrency.limit, true)],
    age: [level("oldest", 4, { max: latency.max_age_ms, min: latency.min_age_ms, avg: latency.avg_age_ms })],
    failures: [line("failed", 4, failures.nack), line("dead", 3, failures.dlq), line("expired", 5, failures.ttl_expired)],
  };
}
