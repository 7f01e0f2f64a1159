// A page for a screen on the wall: whether all queues are well, and which are not.

import { useMemo } from "preact/hooks";
import type { Alert, Me, QueueRow } from "../api/types";
import { ago, amount, count, duration, NONE, rate } from "../lib/format";
import { healthOf, toneOf } from "../lib/health";
import { useFiring } from "../state/alerts";
import { useNow } from "../state/clock";
import { useQueueRows } from "../state/queues";
import { href } from "../state/route";
import { environment, environmentPath } from "../state/session";
import { Failed, Loading } from "../ui/bits";
import { Sparkline } from "../ui/sparkline";

const TILES = 12;
const WINDOW_S = 30 * 60;
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });

export function Wall(_: { me: Me }) {
  const { rows, totals, problem } = useQueueRows();
  const alerts = useFiring(5_000);
  const now = useNow();
  const firing = useMemo(() => (alerts ?? []).filter((one) => one.state === "firing"), [alerts]);
  if (!rows) return problem ? <Failed error={problem} /> : <Loading />;
  const health = healthOf({ rows, alerts, isLive: !problem });
  const done = totals?.length ? totals.reduce((sum, row) => sum + row.counters.acked, 0) / WINDOW_S : null;
  return (
    <div class={`wall ${health.tone}`}>
      <header>
        <h1>
          <a href={href(environmentPath(environment.value!))}>{environment.value!.environment}</a>
        </h1>
        <time>{clock.format(now)}</time>
      </header>
      <p class="wall-verdict" role="status">
        {health.text}
      </p>
      <dl class="wall-figures">
        <Figure label="waiting" value={count(sum(rows, (row) => row.depth))} />
        <Figure label="running" value={count(sum(rows, (row) => row.running))} />
        <Figure label="oldest waits" value={duration(rows.reduce((worst, row) => Math.max(worst, row.depth ? row.oldest_age_ms : 0), 0))} />
        <Figure label="done, last 30 min" value={rate(done)} />
        <Figure label="alerts" value={alerts ? count(firing.length) : NONE} />
      </dl>
      {firing.length > 1 && (
        <ul class="wall-alerts" aria-label="Firing alerts">
          {firing.map((alert) => (
            <li key={alert.id}>
              <b>{alert.rule_name}</b> {alert.queue} · {alert.summary} · since {ago(alert.fired_at_ms)}
            </li>
          ))}
        </ul>
      )}
      <Tiles rows={rows} firing={firing} />
    </div>
  );
}

function Figure({ label, value }: { label: string; value: string }) {
  return (
    <div>
      <dd>{value}</dd>
      <dt>{label}</dt>
    </div>
  );
}

/** The queues that need attention first: queues with an alert, then by the age of their oldest message. */
function Tiles({ rows, firing }: { rows: QueueRow[]; firing: Alert[] }) {
  const alerted = new Set(firing.map((one) => one.queue));
  const weight = (row: QueueRow) => (alerted.has(row.name) ? 1e15 : 0) + (row.depth ? row.oldest_age_ms : 0) + row.depth / 1e6;
  const worst = [...rows].sort((a, b) => weight(b) - weight(a) || a.name.localeCompare(b.name));
  return (
    <>
      <ul class="wall-tiles" aria-label="Queues">
        {worst.slice(0, TILES).map((row) => (
          <li key={row.name} class={alerted.has(row.name) ? "bad" : toneOf(row)}>
            <b>{row.name}</b>
            <span class="wall-depth">{count(row.depth)}</span>
            <Sparkline values={row.spark} label={`Depth of ${row.name}`} />
            <small>{row.paused ? "paused" : row.depth ? `oldest ${duration(row.oldest_age_ms)}` : "nothing waits"}</small>
          </li>
        ))}
      </ul>
      {worst.length > TILES && <p class="legend">And {amount(worst.length - TILES, "queue")} more, whose oldest messages are younger.</p>}
    </>
  );
}

function sum(rows: QueueRow[], pick: (row: QueueRow) => number): number {
  return rows.reduce((total, row) => total + pick(row), 0);
}
