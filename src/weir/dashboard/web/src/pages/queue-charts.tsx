// What a queue did, in six charts, with the same stretch of an earlier day drawn behind.

import { useMemo } from "preact/hooks";
import type { Point, Series } from "../api/types";
import { at, type Earlier } from "../lib/compare";
import { count, duration, rate } from "../lib/format";
import { Chart, type Line } from "../ui/chart";
import { zoomTo } from "../ui/period";

/** A figure of a point, and how many seconds the point covers. */
type Pick = (point: Point, seconds: number) => number | null | undefined;

const depth: Pick = (point) => point.queue_depth.max;
const p95: Pick = (point) => point.latency.p95_ms;
const enqueued = perSecond((point) => point.throughput.enqueued);

function perSecond(pick: (point: Point) => number | null | undefined): Pick {
  return (point, seconds) => {
    const value = pick(point);
    return value == null ? null : value / seconds;
  };
}

export function Charts({ series, before }: { series: Series; before: Earlier | null }) {
  const points = series.timeseries;
  const shared = useMemo(
    () => ({ times: points.map((point) => point.time_ms), kinds: points.map((point) => point.kind), onZoom: zoomTo }),
    [points],
  );
  const lines = useMemo(() => linesOf(series, before), [series, before?.series, before?.days]);
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
        Each point covers {duration(series.bucket_ms)}. Tinted parts carry the last known value; hatched parts are unknown. Drag over a chart to zoom.
      </p>
    </>
  );
}

function linesOf(series: Series, before: Earlier | null) {
  const points = series.timeseries;
  const line = (label: string, tone: number, pick: Pick, dashed = false): Line => ({
    label,
    tone,
    dashed,
    values: points.map((point) => pick(point, series.bucket_ms / 1000) ?? null),
  });
  const past = (pick: Pick): Line[] => {
    if (!before) return [];
    const seconds = before.series.bucket_ms / 1000;
    const values = points.map((point) => {
      const earlier = at(before, point.time_ms);
      return earlier ? (pick(earlier, seconds) ?? null) : null;
    });
    return [{ label: before.label, tone: 5, dashed: true, values }];
  };
  return {
    depth: [line("depth", 1, depth), ...past(depth)],
    throughput: [
      line("in", 1, enqueued),
      line("out", 2, perSecond((point) => point.throughput.dequeued)),
      line("done", 4, perSecond((point) => point.throughput.completed)),
      ...past(enqueued),
    ],
    wait: [line("p50", 2, (point) => point.latency.p50_ms), line("p95", 1, p95), line("p99", 3, (point) => point.latency.p99_ms), ...past(p95)],
    concurrency: [line("running", 1, (point) => point.concurrency.max), line("limit", 3, (point) => point.concurrency.limit || null, true)],
    age: [line("oldest", 4, (point) => point.latency.max_age_ms)],
    failures: [
      line("failed", 4, (point) => point.failures.nack),
      line("dead", 3, (point) => point.failures.dlq),
      line("expired", 5, (point) => point.failures.ttl_expired),
    ],
  };
}
