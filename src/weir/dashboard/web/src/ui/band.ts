// A level over time as a band from its lowest to its highest value with the mean on it.

import type { Values } from "../api/types";

export type Spread = { max: Values; min: Values; avg: Values };

/** Rows of earlier releases know only the maximum: then the line is the maximum, and there is no band. */
export function bandOf({ max, min, avg }: Spread): { values: Values; low: Values; high: Values } {
  return {
    values: max.map((value, i) => avg[i] ?? value),
    low: min,
    high: max.map((value, i) => (min[i] == null ? null : value)),
  };
}

/** The time of the last point whose minimum and mean are not known although its maximum is. */
export function lastMaximumOnly(times: number[], { max, min }: Spread): number | null {
  for (let i = times.length - 1; i >= 0; i--) if (max[i] != null && min[i] == null) return times[i]!;
  return null;
}
