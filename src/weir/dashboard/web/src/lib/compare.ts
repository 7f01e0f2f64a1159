// The same moment on an earlier day, whose points may be wider: older tiers are coarser.

import type { Point, Series } from "../api/types";

export type Earlier = { series: Series; label: string; days: number };

const DAY_MS = 86_400_000;

/** The earlier point that covers what lies under `timeMs` now. */
export function at({ series, days }: Earlier, timeMs: number): Point | undefined {
  const first = series.timeseries[0];
  if (!first) return undefined;
  return series.timeseries[Math.floor((timeMs - days * DAY_MS - first.time_ms) / series.bucket_ms)];
}
