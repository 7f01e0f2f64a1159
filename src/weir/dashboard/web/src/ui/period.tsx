// The time range that is shown: a period up to now, or a range that was zoomed into.

import { route, setQuery } from "../state/route";
import { moment } from "../lib/format";

export const PERIODS = ["30m", "2h", "24h", "7d", "30d", "400d"] as const;
const DEFAULT = "2h";

export type Range = { period?: string; from?: string; to?: string };

export function currentRange(): Range {
  const { query } = route.value;
  const from = query.get("from");
  const to = query.get("to");
  if (from && to) return { from, to };
  return { period: query.get("period") ?? DEFAULT };
}

export function zoomTo(fromMs: number, toMs: number): void {
  setQuery({ from: new Date(fromMs).toISOString(), to: new Date(toMs).toISOString(), period: undefined }, { replace: false });
}

const UNITS: Record<string, number> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** The same range, shifted back by whole days, for a comparison. */
export function shifted(range: Range, days: number): Range {
  const back = days * 86_400_000;
  if (range.from && range.to)
    return { from: new Date(Date.parse(range.from) - back).toISOString(), to: new Date(Date.parse(range.to) - back).toISOString() };
  const period = range.period ?? DEFAULT;
  const length = Number.parseInt(period, 10) * (UNITS[period.at(-1)!] ?? 3_600_000);
  const to = Date.now() - back;
  return { from: new Date(to - length).toISOString(), to: new Date(to).toISOString() };
}

export function PeriodPicker() {
  const range = currentRange();
  return (
    <div class="segments" role="group" aria-label="Period">
      {PERIODS.map((period) => (
        <button
          key={period}
          type="button"
          aria-pressed={range.period === period}
          onClick={() => setQuery({ period, from: undefined, to: undefined }, { replace: false })}
        >
          {period}
        </button>
      ))}
      {range.from && (
        <button type="button" aria-pressed={true} onClick={() => setQuery({ from: undefined, to: undefined }, { replace: false })}>
          {moment(range.from)} – {moment(range.to)} ×
        </button>
      )}
    </div>
  );
}
