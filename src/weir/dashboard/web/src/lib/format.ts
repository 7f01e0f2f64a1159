// Numbers, durations and times as people read them. Times are shown in the reader's zone.

const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const plain = new Intl.NumberFormat();
const tenths = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export const NONE = "–";

export function count(value: number | null | undefined): string {
  if (value == null) return NONE;
  if (Math.abs(value) >= 10_000) return compact.format(value);
  // A mean has decimals, which do not matter from ten on.
  return Math.abs(value) < 10 ? tenths.format(value) : plain.format(Math.round(value));
}

export function exact(value: number | null | undefined): string {
  return value == null ? NONE : plain.format(value);
}

/** A number of things: `1 attempt`, `1,200 messages`. */
export function amount(value: number, noun: string): string {
  return `${count(value)} ${value === 1 ? noun : `${noun}s`}`;
}

export function rate(perSecond: number | null | undefined): string {
  if (perSecond == null) return NONE;
  const digits = perSecond >= 100 ? 0 : perSecond >= 1 ? 1 : 2;
  return `${perSecond.toFixed(perSecond === 0 ? 0 : digits)}/s`;
}

export function percent(share: number | null | undefined): string {
  if (share == null) return NONE;
  const value = share * 100;
  return `${value.toFixed(value > 0 && value < 10 ? 1 : 0)} %`;
}

const STEPS: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1_000, "s"],
];

export function duration(ms: number | null | undefined): string {
  if (ms == null) return NONE;
  if (ms < 1) return "0 ms";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${tenths.format(ms / 1_000)} s`;
  // To the nearest second, as in texts of the server, which stand beside these.
  ms = Math.max(Math.round(ms / 1_000) * 1_000, 60_000);
  const [size, unit] = STEPS.find(([step]) => ms >= step)!;
  const whole = Math.floor(ms / size);
  const next = STEPS[STEPS.findIndex(([step]) => step === size) + 1];
  const rest = next ? Math.floor((ms - whole * size) / next[0]) : 0;
  return rest && next ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
}

export function moment(time: number | string | null | undefined): string {
  if (time == null) return NONE;
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? NONE : clock.format(date);
}

export function ago(time: number | string | null | undefined, now = Date.now()): string {
  if (time == null) return NONE;
  const elapsed = now - new Date(time).getTime();
  if (Number.isNaN(elapsed)) return NONE;
  return elapsed < 1_000 ? "just now" : `${duration(Math.floor(elapsed / 1_000) * 1_000)} ago`;
}

const LATE_MS = 60_000;

/** A moment that should come: `in 3 min`, or `3 min late`. */
export function until(time: number | null | undefined, now = Date.now()): string {
  if (time == null) return NONE;
  const left = time - now;
  if (left < -LATE_MS) return `${duration(Math.floor(-left / 1_000) * 1_000)} late`;
  return left < 1_000 ? "now" : `in ${duration(Math.floor(left / 1_000) * 1_000)}`;
}
