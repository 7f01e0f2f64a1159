// The state of an environment in one sentence: the worst thing first.

import type { Alert, QueueRow } from "../api/types";
import { count, duration } from "./format";
import type { Tone } from "../ui/bits";

export type Verdict = { tone: Tone; text: string; queue?: string };

/** What is known of an environment. */
export type Seen = {
  rows: QueueRow[];
  /** Null if they cannot be read, undefined until they are. */
  alerts: Alert[] | null | undefined;
  /** Whether the rows are those of this moment. */
  isLive: boolean;
};

const STUCK_MS = 60_000;
const SLOW_DRAIN_MS = 15 * 60_000;
const MANY = 100;

export function healthOf({ rows, alerts, isLive }: Seen): Verdict {
  const firing = (alerts ?? []).filter((alert) => alert.state === "firing");
  if (firing.length) {
    const worst = firing[0]!;
    const rest = firing.length > 1 ? ` and ${firing.length - 1} more` : "";
    const why = worst.summary ? `: ${worst.summary}` : "";
    return { tone: "bad", text: `${worst.rule_name}${rest}${why}.`, ...at(worst.queue) };
  }
  if (!isLive) return { tone: "warn", text: "Not known: the server does not say how the queues are now." };
  const stuck = worstBy(rows, (row) => (row.paused || row.running > 0 || row.depth === 0 ? 0 : row.oldest_age_ms));
  if (stuck && stuck.oldest_age_ms > STUCK_MS)
    return { tone: "bad", text: `${stuck.name} has ${count(stuck.depth)} waiting, the oldest for ${duration(stuck.oldest_age_ms)}, and no worker takes them.`, queue: stuck.name };
  const slow = worstBy(rows, (row) => (row.paused ? 0 : (row.drain_ms ?? 0)));
  if (slow && (slow.drain_ms ?? 0) > SLOW_DRAIN_MS)
    return { tone: "warn", text: `${slow.name} is backed up: ${count(slow.depth)} waiting, ${duration(slow.drain_ms)} to drain.`, queue: slow.name };
  const growing = worstBy(rows, (row) => (row.growing && !row.paused ? row.depth : 0));
  if (growing && growing.depth > MANY)
    return { tone: "warn", text: `${growing.name} grows faster than it drains: ${count(growing.depth)} waiting.`, queue: growing.name };
  const paused = rows.filter((row) => row.paused && row.depth > 0);
  if (paused.length)
    return { tone: "warn", text: `${paused[0]!.name} is paused with ${count(paused[0]!.depth)} waiting.`, queue: paused[0]!.name };
  if (alerts === undefined) return { tone: "calm", text: "Looking for alerts…" };
  if (alerts === null) return { tone: "warn", text: "Not known: the alerts cannot be read." };
  if (!rows.length) return { tone: "calm", text: "No queue yet." };
  return { tone: "good", text: "All queues keep up." };
}

/** The state of one queue: `bad` if no worker takes its messages, `warn` if it is paused or falls behind. */
export function toneOf(row: QueueRow): Tone {
  if (!row.depth) return "good";
  if (row.paused) return "warn";
  if (!row.running && row.oldest_age_ms > STUCK_MS) return "bad";
  return (row.growing && row.depth > MANY) || (row.drain_ms ?? 0) > SLOW_DRAIN_MS ? "warn" : "good";
}

/** The row that weighs most, if any weighs anything. */
function worstBy(rows: QueueRow[], weight: (row: QueueRow) => number): QueueRow | undefined {
  let worst: QueueRow | undefined;
  for (const row of rows) if (weight(row) > (worst ? weight(worst) : 0)) worst = row;
  return worst;
}

function at(queue: string | null): { queue?: string } {
  return queue ? { queue } : {};
}
