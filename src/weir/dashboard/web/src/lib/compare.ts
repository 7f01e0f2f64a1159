// The same time on an earlier day. Its buckets may be wider, because older tiers are coarser.

import type { Series, Values } from "../api/types";

export type Earlier = { series: Series; label: string; days: number };

const DAY_MS = 86_400_000;

/** The values of the earlier series at the same times of day, one for each of `times`. */
export function under({ series, days }: Earlier, values: Values, times: number[]): Values {
  const first = series.columns.time_ms[0] ?? 0;
  return times.map((time) => values[Math.floor((time - days * DAY_MS - first) / series.bucket_ms)] ?? null);
}
