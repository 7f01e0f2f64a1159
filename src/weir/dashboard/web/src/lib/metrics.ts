// The metrics of alert rules, and their values as people say them.

import { count, duration, exact, percent, rate } from "./format";

type Unit = {
  /** What a person types a threshold in. */
  label: string;
  /** How many of the API's units that is. */
  size: number;
  say: (value: number | null) => string;
};

const MESSAGES: Unit = { label: "messages", size: 1, say: exact };
const OPERATIONS: Unit = { label: "operations", size: 1, say: exact };
const TIME: Unit = { label: "seconds", size: 1_000, say: duration };

export const METRICS: Record<string, Unit> = {
  backlog: MESSAGES,
  oldest_age: TIME,
  latency_mean: TIME,
  latency_p50: TIME,
  latency_p95: TIME,
  latency_p99: TIME,
  error_rate: { label: "share, 0 to 1", size: 1, say: percent },
  dead_letters: MESSAGES,
  expiries: MESSAGES,
  cancellations: MESSAGES,
  throughput: { label: "messages per second", size: 1, say: rate },
  drain_time: TIME,
  expiring: MESSAGES,
  worker_lag: TIME,
  pipeline_lag: TIME,
  metrics_drift: { label: "counts", size: 1, say: exact },
  operation_age: TIME,
  operation_backlog: OPERATIONS,
  failed_operations: OPERATIONS,
};

export function sayValue(metric: string, value: number | null): string {
  return (METRICS[metric]?.say ?? count)(value);
}
