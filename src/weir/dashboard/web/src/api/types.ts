// The shapes of the public API that the pages read.

import type { Environment } from "../state/session";
import type { Spread } from "../ui/band";
import type { Kind } from "../ui/chart";

/** A payload is not parsed, because it would change: `api/http.ts` leaves its text as it came. */
export type JsonText = string;

export type Role = "read" | "write" | "admin" | "operator";
export type Me = { role: Role; organization: string | null; environments: (Environment & { concurrency: number | null })[] };

export type QueueNow = {
  name: string;
  depth: number;
  delayed: number;
  running: number;
  limit: number | null;
  utilization_pct: number | null;
  oldest_age_ms: number;
  paused: boolean;
  /** The promises of the queue; a list of queues does not contain them. */
  definition?: { log_ms: number | null } | null;
};

export type QueueGlance = {
  queue: string;
  depth: (number | null)[];
  p95_ms: number | null;
  error_rate: number | null;
  drain_ms: number | null;
  counters: { enqueued: number; acked: number; dead: number; expired: number; cancelled: number };
};

/** A queue as the overview shows it: now, and over the last half hour. */
export type QueueRow = QueueNow & {
  spark: (number | null)[];
  p95_ms: number | null;
  error_rate: number | null;
  drain_ms: number | null;
  growing: boolean;
};

/** The values of one figure, one per bucket; null where it is not known. */
export type Values = (number | null)[];

/** A series as columns: `format=columns`. */
export type Columns = {
  time_ms: number[];
  kind: Kind[];
  throughput: { enqueued: Values; dequeued: Values; completed: Values; cancelled: Values };
  queue_depth: Spread;
  latency: { max_age_ms: Values; min_age_ms: Values; avg_age_ms: Values; p50_ms: Values; p95_ms: Values; p99_ms: Values };
  concurrency: Spread & { limit: Values };
  failures: { nack: Values; dlq: Values; ttl_expired: Values };
};

/** Something that happened at a moment or over a span. The end of a moment is null, and so is the end of a span that goes on. */
export type Mark = { kind: "alert" | "annotation" | "spec" | "pause" | "gap"; at_ms: number; until_ms: number | null; text: string; queue: string | null };

export type UnknownSpan = { start: string; end: string | null; kind: string; reason: string };

/** The sketch from which the percentiles of a part of the period were read; only the error of `ddsketch` has a bound. */
export type SketchSpan = { start: string; end: string; sketch: "ddsketch" | "tdigest" | "both" };

export type Series = { bucket_ms: number; columns: Columns; unknown: UnknownSpan[]; percentile_sketches: SketchSpan[] };

export type Worker = {
  worker_id: string;
  role: string;
  hostname: string | null;
  pid: string | null;
  health: "healthy" | "struggling" | "silent" | "unknown";
  last_seen: string;
  pool_size: number;
  figures: Record<string, number | null>;
};

export type WorkerQueue = {
  organization: string | null;
  project: string | null;
  environment: string | null;
  queue: string | null;
  pops: number;
  lag_mean_ms: number | null;
  lag_max_ms: number;
  lag_p50_ms: number | null;
  lag_p95_ms: number | null;
  lag_p99_ms: number | null;
};

export type WorkerSeries = {
  bucket_ms: number;
  shared: boolean;
  columns: { time_ms: number[]; kind: Kind[]; figures: Record<string, Values> };
};

export type EvidenceRow = { what: string; now: string; usual: string | null };

export type Explanation = {
  cause: string;
  summary: string;
  evidence_table: EvidenceRow[];
  outlook: string;
  backed_up: boolean;
  recovered: string | null;
};

export type Alert = {
  id: string;
  rule_name: string;
  queue: string | null;
  state: "firing" | "resolved";
  unknown_since_ms: number | null;
  fired_at_ms: number;
  resolved_at_ms: number | null;
  cause: string;
  summary: string;
  evidence_table: EvidenceRow[];
  condition: string;
  metric_words: string;
  value_text: string;
  acknowledged_at_ms: number | null;
  acknowledged_by: string | null;
};

export type AlertRule = {
  id: string;
  revision: string;
  name: string;
  metric: string;
  operator: string;
  threshold: number;
  clear_threshold: number | null;
  auto_resolve: boolean;
  queue: string | null;
  window_ms: number;
  cooldown_ms: number;
  channels: string[];
  enabled: boolean;
  condition: string;
  origin: "api" | "spec";
  created_at_ms: number;
  updated_at_ms: number;
};

/** A metric that a rule can watch: its name as people say it, its unit, and what it is about. */
export type AlertMetric = { name: string; words: string; unit: string; about: string; description: string };

export type AlertChannel = { name: string; kind: string; config: Record<string, unknown>; disabled_reason: string | null };

export type Group = {
  fingerprint: string;
  template: string;
  dead_count: number;
  total_count: number;
  first_seen_ms: number;
  last_seen_ms: number;
  rate_per_h: number;
  queues: string[];
  sample_error: string;
};

export type Letter = {
  id: string;
  queue: string;
  reason: string;
  error: string;
  fingerprint: string;
  attempts: number;
  max_attempts: number;
  enqueued_at_ms: number;
  died_at_ms: number;
  key: string | null;
  headers: Record<string, string>;
  payload: JsonText | null;
  payload_base64: string | null;
  payload_bytes: number;
  redriven_at_ms: number | null;
  redrive_result: string | null;
};

export type Task = {
  id: string;
  kind: "redrive" | "purge" | "cancel" | "replay";
  state: string;
  dry_run: boolean;
  filter: Record<string, unknown>;
  rate_per_s: number | null;
  canary: number;
  canary_state: string;
  expected: number;
  scanned: number;
  matched: number;
  done: number;
  skipped: number;
  died_again: number;
  samples: string[];
  note: string | null;
  problem: string | null;
  created_at_ms: number;
  finished_at_ms: number | null;
};

export type Operation = {
  id: string;
  operation_type: string;
  status: "pending" | "processing" | "completed" | "failed" | "cancelled";
  priority: number;
  queue: string;
  partition: string | null;
  messages: number;
  created_ms: number;
  retry_count: number;
  error_message: string | null;
  latency_seconds: number;
};

export type FullPartition = {
  queue: string;
  partition: string | null;
  operations: number;
  messages: number;
  oldest_age_ms: number;
  last_error: string | null;
  last_error_at_ms: number | null;
};

export type OperationStats = {
  stats: { operation_type: string; priority: number; status: string; count: number; oldest_ms: number; avg_latency_seconds: number }[];
  fullest_partitions: FullPartition[];
  system_health: {
    pool_utilization: number;
    pool_waiting: number;
    in_flight: number;
    limit: number;
    event_loop_lag_ms: number;
    queue_depth: number;
    drain_per_second: number;
    decision: "execute" | "queue" | "reject";
  };
};

export type PipelineState = {
  running: boolean;
  status: { state: string; error: string; batch: number; batch_events: number; batch_s: number; events: number; rejected: number; failures: number; newest_ms: number; updated_ms: number; deaths: number; died_ms: number } | null;
  streams: { metric: string; shard: number; position: string; events: number; seconds: number }[];
  lag_events: number;
  lag_s: number;
  off: { shard: number; since_ms: number; by: string; reason: string }[];
  gaps: { metric: string; shard: number; kind: string; open: boolean; from_id: string; from_ms: number; to_ms: number; reason: string; entries: number | null; lost: Record<string, number> }[] | null;
};

export type Audit = { number: number; started_at_ms: number; drift: number | null; reason: string; queues: number | null; events: number | null; held_ms: number | null };

export type DriftingQueue = { organization: string; project: string; environment: string; queue: string; drift: number; text: string };

export type PipelineAudit = { latest: Audit | null; drifting: DriftingQueue[]; items: Audit[]; next_before: number | null };

export type SpecRevision = { revision: number; file: string; actor: string; applied_at_ms: number };
export type SpecText = SpecRevision & { source: string };

/** A webhook, and which of its secrets its environment lacks. */
export type Webhook = {
  name: string;
  path: string;
  queue: string | null;
  scheme: string | null;
  missing_secrets: string[];
  accepts: boolean;
};

export type SpecPlan = {
  allowed: boolean;
  changes: { effect: string; kind: string; name: string; path: string[]; before: unknown; after: unknown }[];
  refusals: string[];
  warnings: string[];
  /** The revision of the environment; an apply with it does what the plan shows, or nothing. */
  revision: number;
};

/** The outcome of a tick, or of several ticks that were skipped together. */
export type ScheduleRun = {
  tick_ms: number;
  outcome: "pushed" | "skipped" | "failed";
  ticks: number;
  asked: boolean;
  reason: string | null;
  queue: string;
  message_id: string | null;
  ended: "acked" | "dead" | "cancelled" | "failed" | null;
};

export type Schedule = {
  name: string;
  revision: string;
  queue: string;
  cron: string | null;
  every_ms: number | null;
  timezone: string;
  payload: JsonText | null;
  missed: "skip" | "last" | "all";
  overlap: "allow" | "skip";
  origin: "api" | "spec" | "app";
  app: string | null;
  paused: boolean;
  next_tick_ms: number | null;
  problem: string | null;
};

export type ListedSchedule = Schedule & { last_run: ScheduleRun | null };
export type ScheduleDetail = Schedule & { next_ticks_ms: number[]; runs: ScheduleRun[] };

export type MessageState = "ready" | "scheduled" | "retrying" | "blocked" | "leased" | "queued";

export type LeaseHolder = { consumer: string; until_ms: number };

export type ListedMessage = {
  message_id: string;
  state: MessageState;
  key: string | null;
  priority: number;
  attempts: number;
  enqueued_at_ms: number;
  available_at_ms: number;
  preview: string;
  payload_bytes: number;
  last_error: string | null;
  held: LeaseHolder | null;
};

export type MessageList = {
  state: MessageState;
  counts: Record<MessageState | "delayed", number | null>;
  items: ListedMessage[];
  operations: Operation[];
  scanned: number;
  next_cursor: string | null;
};

export type Step = { at_ms: number; what: string; details: Record<string, unknown> };

export type Attempt = { attempt: number; worker: string; started_at_ms: number; finished_at_ms: number; ending: string; error: string };

export type WaitingMessage = {
  payload: JsonText | null;
  payload_base64: string | null;
  payload_bytes: number;
  headers: Record<string, string>;
  key: string | null;
  idempotency_key: string | null;
  priority: number;
  attempts: number;
  enqueued_at_ms: number;
  available_at_ms: number;
  expires_at_ms: number;
  last_error: string | null;
  held: LeaseHolder | null;
  ahead: number | null;
  behind_id: string | null;
};

export type Relative = { message_id: string; kind: "chained" | "redriven" | "copied" | "replayed"; queue: string | null; at_ms: number | null };

export type LifeAttempt = { attempt: number; started_at_ms: number; ended_at_ms: number; end: string; consumer: string };

export type Life = {
  key: string | null;
  outcome: "acked" | "dead" | "expired" | "cancelled";
  reason: string | null;
  enqueued_at_ms: number;
  handed_out_at_ms: number | null;
  ended_at_ms: number;
  priority: number;
  attempts: number;
  last_attempts: LifeAttempt[];
  handler_ms: number | null;
  leased_ms: number;
  parts: WaitPart[];
  blocked_by_id: string | null;
  payload_bytes: number;
};

export type MessageNow = {
  message_id: string;
  queue: string | null;
  state: string;
  items: Step[];
  message: WaitingMessage | null;
  life: Life | null;
  attempts: Attempt[];
  result: JsonText | null;
  progress: JsonText | null;
  operation_id: string | null;
  see: string | null;
  trace_id: string | null;
  trace_url: string | null;
  parent: Relative | null;
  children: Relative[];
  more_children: boolean;
};

export type KeyUse = { key: string; messages: number; mean_wait_ms: number; leased_ms: number; leased_share: number };

export type KeyFairness = {
  from_ms: number;
  to_ms: number;
  step_ms: number;
  keys: number;
  waited_most: KeyUse[];
  took_most: KeyUse[];
  points: { time_ms: number; keys: number; fairness: number }[];
};

export type WaitPart = { reason: string; waited_ms: number; text: string };

export type Why = { waited_ms: number; leased_ms: number; parts: WaitPart[]; behind_id: string | null };

export type Token = {
  id: string;
  name: string;
  role: Role;
  organization: string | null;
  project: string | null;
  environment: string | null;
  expires_at_ms: number | null;
  revoked_at_ms: number | null;
  last_used_at_ms: number | null;
};

export type AuditEntry = { id: string; actor: string; action: string; target: string; details: Record<string, unknown>; at_ms: number };

export type Channel = { id: string; name: string; consumers: { id: string; name: string; queue: string }[] };

export type DisabledEndpoint = { url: string; disabled_at_ms: number; reason: string };

export type Silence = { id: string; rule_name: string | null; queue: string | null; ends_at_ms: number; comment: string; created_by: string };

/** What was sent to one alert channel, and how it went. */
export type Notification = { id: string; channel: string; kind: "firing" | "resolved" | "test"; state: "waiting" | "delivered" | "failed" | "skipped"; created_at_ms: number; last_error: string | null; deliveries: unknown[] };

/** The hits of a search; not complete if there was no time to look into every queue for the key. */
export type Found = { queues: string[]; messages: { message_id: string; queue: string | null; state: string; key: string | null }[]; complete: boolean };

/** A dead letter that a dry run matched, before and after the patch. */
export type Sample = { id: string; queue: string; error: string; payload: JsonText | null; patched: JsonText | null; problem: string | null };

export type LoggedMessage = {
  id: string;
  number: number;
  payload: JsonText | null;
  payload_base64: string | null;
  headers: Record<string, string>;
  left_out: boolean;
  kept_until_ms: number;
  life: Life;
};

export type LogPage = {
  queue: string;
  log_ms: number | null;
  items: LoggedMessage[];
  scanned: number;
  unanswered: number;
  next_cursor: string | null;
  complete_until_ms: number;
  gaps: { from_ms: number; to_ms: number; kind: string; reason: string }[];
};
