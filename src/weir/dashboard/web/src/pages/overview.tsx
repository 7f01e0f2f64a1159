// The overview of an environment: one sentence on its health, then every queue.

import { useMemo } from "preact/hooks";
import type { Me, QueueGlance, QueueRow } from "../api/types";
import { count, duration, exact, percent, rate } from "../lib/format";
import { healthOf, type Seen } from "../lib/health";
import { useFiring } from "../state/alerts";
import { useQueueRows } from "../state/queues";
import { href, route, setQuery } from "../state/route";
import { environment, environmentPath } from "../state/session";
import { Badge, Failed, Loading, Page, Stat } from "../ui/bits";
import { Sparkline } from "../ui/sparkline";
import { Table, type Column } from "../ui/table";

const WINDOW_S = 30 * 60;
/** The history is of at most so many queues. */
const MOST = 1_000;

export function Overview(_: { me: Me }) {
  const { rows, totals, problem } = useQueueRows();
  const alerts = useFiring(10_000);
  if (!rows) return problem ? <Failed error={problem} /> : <Loading />;
  return (
    <Page title={environment.value!.environment} actions={<a href={href(environmentPath(environment.value!, "wall"))}>Wall page</a>}>
      <Health rows={rows} alerts={alerts} isLive={!problem} />
      <Totals rows={rows} history={totals} />
      <Queues rows={rows} />
    </Page>
  );
}

function queueHref(name: string): string {
  return href(environmentPath(environment.value!, "queue", name));
}

function Health({ rows, alerts, isLive }: Seen) {
  const verdict = useMemo(() => healthOf({ rows, alerts, isLive }), [rows, alerts, isLive]);
  return (
    <section class={`panel verdict ${verdict.tone}`} aria-label="Health" role="status">
      <span>{verdict.queue ? <a href={queueHref(verdict.queue)}>{verdict.text}</a> : verdict.text}</span>
    </section>
  );
}

function Totals({ rows, history }: { rows: QueueRow[]; history: QueueGlance[] | null }) {
  const sum = (pick: (row: QueueRow) => number) => rows.reduce((total, row) => total + pick(row), 0);
  const oldest = rows.reduce((worst, row) => Math.max(worst, row.depth ? row.oldest_age_ms : 0), 0);
  const per = (pick: (row: QueueGlance) => number) =>
    history?.length ? history.reduce((total, row) => total + pick(row), 0) / WINDOW_S : null; // none: not known
  const part = history?.length === MOST ? `of ${exact(MOST)} queues` : undefined;
  return (
    <section class="panel" aria-label="Totals">
      <dl class="stats">
        <Stat label="Queues" value={count(rows.length)} note={`${rows.filter((row) => row.paused).length} paused`} />
        <Stat label="Waiting" value={count(sum((row) => row.depth))} />
        <Stat label="Running" value={count(sum((row) => row.running))} />
        <Stat label="Oldest waits" value={duration(oldest)} />
        <Stat label="In, last 30 min" value={rate(per((row) => row.counters.enqueued))} note={part} />
        <Stat label="Done, last 30 min" value={rate(per((row) => row.counters.acked))} note={part} />
      </dl>
    </section>
  );
}

/** The forecast comes from landed events, in which a queue may still be empty that has messages now: then it is not known. */
function drainMs(row: QueueRow): number | null {
  return row.depth && row.drain_ms === 0 ? null : row.drain_ms;
}

const COLUMNS: Column<QueueRow>[] = [
  {
    key: "queue",
    label: "Queue",
    sort: (row) => row.name,
    cell: (row) => (
      <>
        <a href={queueHref(row.name)}>{row.name}</a> {row.paused && <Badge tone="warn">paused</Badge>}
      </>
    ),
  },
  { key: "spark", label: "30 min", cell: (row) => <Sparkline values={row.spark} label={`Depth of ${row.name}`} /> },
  { key: "depth", label: "Depth", numeric: true, sort: (row) => row.depth, cell: (row) => count(row.depth) },
  {
    key: "oldest",
    label: "Oldest",
    numeric: true,
    sort: (row) => (row.depth ? row.oldest_age_ms : null),
    cell: (row) => (row.depth ? duration(row.oldest_age_ms) : "–"),
  },
  { key: "p95", label: "p95 wait", numeric: true, sort: (row) => row.p95_ms, cell: (row) => duration(row.p95_ms) },
  {
    key: "utilization",
    label: "Utilization",
    numeric: true,
    sort: (row) => row.utilization_pct,
    cell: (row) => <Utilization row={row} />,
  },
  {
    key: "failures",
    label: "Failures",
    numeric: true,
    sort: (row) => row.error_rate,
    cell: (row) => (row.error_rate && row.error_rate > 0.05 ? <Badge tone="bad">{percent(row.error_rate)}</Badge> : percent(row.error_rate)),
  },
  { key: "drain", label: "Drains in", numeric: true, sort: drainMs, cell: (row) => (row.depth ? duration(drainMs(row)) : "empty") },
];

function Utilization({ row }: { row: QueueRow }) {
  if (row.limit == null) return <>{count(row.running)} running</>;
  const full = row.utilization_pct != null && row.utilization_pct >= 100;
  const text = `${count(row.running)} / ${count(row.limit)}`;
  return full ? <Badge tone="warn">{text}</Badge> : <>{text}</>;
}

function Queues({ rows }: { rows: QueueRow[] }) {
  const { query } = route.value;
  const search = query.get("q") ?? "";
  const only = query.get("only") ?? "";
  const sort = query.get("sort") ?? "-depth";
  const shown = useMemo(() => rows.filter((row) => matches(row, search, only)), [rows, search, only]);
  return (
    <section class="panel" aria-label="Queues">
      <div class="row">
        <label>
          <span class="visually-hidden">Search queues</span>
          <input type="search" placeholder="Search queues" value={search} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        </label>
        <label>
          <span class="visually-hidden">Filter</span>
          <select value={only} onChange={(event) => setQuery({ only: event.currentTarget.value })}>
            <option value="">all queues</option>
            <option value="waiting">with messages</option>
            <option value="paused">paused</option>
            <option value="full">at their limit</option>
            <option value="failing">failing</option>
          </select>
        </label>
        <span aria-live="polite">{count(shown.length)} shown</span>
      </div>
      <Table
        caption="Queues"
        rows={shown}
        columns={COLUMNS}
        rowKey={(row) => row.name}
        sort={sort}
        onSort={(next) => setQuery({ sort: next })}
        empty={
          rows.length ? (
            <p>No queue matches.</p>
          ) : (
            <>
              <p>No queue yet. Create one, then push to it:</p>
              <pre>{"weir queue create orders\nweir queue push orders '{\"hello\": \"world\"}'"}</pre>
            </>
          )
        }
      />
    </section>
  );
}

function matches(row: QueueRow, search: string, only: string): boolean {
  if (search && !row.name.toLowerCase().includes(search.toLowerCase())) return false;
  if (only === "waiting") return row.depth > 0;
  if (only === "paused") return row.paused;
  if (only === "full") return row.utilization_pct != null && row.utilization_pct >= 100;
  if (only === "failing") return (row.error_rate ?? 0) > 0.05;
  return true;
}
