// The processes that serve the environment, or all of them for operators: their health, lag, throughput and free slots.

import { useMemo } from "preact/hooks";
import type { Me, Worker, WorkerQueue, WorkerSeries } from "../api/types";
import { count, duration, rate } from "../lib/format";
import { mayOperate } from "../lib/rights";
import { useMarks } from "../state/marks";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { route, setQuery } from "../state/route";
import { Badge, Failed, Loading, Page, When, type Tone } from "../ui/bits";
import { Chart, type Line } from "../ui/chart";
import { currentRange, PeriodPicker, zoomTo } from "../ui/period";
import { Table, type Column } from "../ui/table";

const TONES: Record<Worker["health"], Tone> = { healthy: "good", struggling: "warn", silent: "bad", unknown: "calm" };

type Everywhere = "true" | undefined;

export function Processes({ me }: { me: Me }) {
  const { get } = useApi();
  const everywhere: Everywhere = mayOperate(me) && route.value.query.get("all") ? "true" : undefined;
  const list = usePoll(() => get<{ workers: Worker[] }>("/api/v1/workers", { all_environments: everywhere }), [everywhere], 5_000);
  const chosen = route.value.query.get("worker") ?? "";
  const actions = (
    <>
      {mayOperate(me) && (
        <label>
          <input type="checkbox" checked={everywhere !== undefined} onChange={() => setQuery({ all: everywhere ? undefined : "1", worker: undefined })} /> every environment
        </label>
      )}
      <PeriodPicker />
    </>
  );
  return (
    <Page title="Processes" actions={actions}>
      <Failed error={list.error} />
      {!list.data && !list.error && <Loading />}
      {list.data && <List workers={list.data.workers} chosen={chosen} />}
      {chosen && <QueueLags worker={chosen} everywhere={everywhere} />}
      <Figures worker={chosen} everywhere={everywhere} />
    </Page>
  );
}

function List({ workers, chosen }: { workers: Worker[]; chosen: string }) {
  const columns: Column<Worker>[] = [
    {
      key: "worker",
      label: "Process",
      sort: (row) => row.role,
      cell: (row) => (
        <button type="button" class="plain" aria-pressed={row.worker_id === chosen} onClick={() => setQuery({ worker: row.worker_id === chosen ? undefined : row.worker_id })}>
          <a>{row.role}</a> {row.hostname ? `${row.hostname}/${row.pid}` : row.worker_id}
        </button>
      ),
    },
    { key: "health", label: "Health", sort: (row) => row.health, cell: (row) => <Badge tone={TONES[row.health]}>{row.health}</Badge> },
    { key: "seen", label: "Seen", sort: (row) => row.last_seen, cell: (row) => <When at={row.last_seen} /> },
    figure("event_loop_lag_max_ms", "Loop lag, worst", duration),
    figure("free_slots_min", "Free slots", count),
    figure("pushes_per_s", "Pushes", rate),
    figure("pops_per_s", "Pops", rate),
    figure("acks_per_s", "Acks", rate),
    figure("lag_p99_ms", "Lag, p99", duration),
    figure("backoff_max", "Backing off", count),
    figure("deaths", "Deaths", count),
    figure("errors", "Errors", count),
  ];
  return (
    <section class="panel" aria-label="Processes">
      <Table
        caption="Processes of the period"
        rows={workers}
        columns={columns}
        rowKey={(row) => [row.role, row.hostname, row.pid, row.worker_id].join(" ")}
        sort={route.value.query.get("sort") ?? "worker"}
        onSort={(sort) => setQuery({ sort })}
        empty={
          <>
            <p>No process has reported in the last five minutes. Start one:</p>
            <pre>weir worker --app yourmodule:app</pre>
          </>
        }
      />
    </section>
  );
}

function figure(key: string, label: string, format: (value: number | null | undefined) => string): Column<Worker> {
  return { key, label, numeric: true, sort: (row) => row.figures[key] ?? null, cell: (row) => format(row.figures[key]) };
}

function QueueLags({ worker, everywhere }: { worker: string; everywhere: Everywhere }) {
  const { get } = useApi();
  const range = currentRange();
  const key = JSON.stringify(range);
  const found = usePoll(
    () =>
      get<{ items: WorkerQueue[] }>(`/api/v1/workers/${encodeURIComponent(worker)}/queues`, {
        period: range.period,
        from: range.from,
        to: range.to,
        all_environments: everywhere,
      }),
    [worker, everywhere, key],
    range.from ? 0 : 5_000,
  );
  const columns: Column<WorkerQueue>[] = [
    ...(everywhere ? [{ key: "where", label: "Environment", cell: (row: WorkerQueue) => [row.organization, row.project, row.environment].filter(Boolean).join(" / ") }] : []),
    { key: "queue", label: "Queue", cell: (row) => row.queue ?? "other queues" },
    lag("pops", "Pops", count),
    lag("lag_mean_ms", "Lag, mean", duration),
    lag("lag_p50_ms", "p50", duration),
    lag("lag_p95_ms", "p95", duration),
    lag("lag_p99_ms", "p99", duration),
    lag("lag_max_ms", "Worst", duration),
  ];
  return (
    <section class="panel" aria-label="Lag by queue">
      <Failed error={found.error} />
      {found.data && (
        <Table
          caption="Lag of the process by queue"
          rows={found.data.items}
          columns={columns}
          rowKey={(row) => [row.organization, row.project, row.environment, row.queue].join(" ")}
          sort="-pops"
          empty={<p>This process got no message in this period.</p>}
        />
      )}
    </section>
  );
}

function lag(key: keyof WorkerQueue, label: string, format: (value: number | null | undefined) => string): Column<WorkerQueue> {
  const value = (row: WorkerQueue) => row[key] as number | null;
  return { key, label, numeric: true, sort: value, cell: (row) => format(value(row)) };
}

function Figures({ worker, everywhere }: { worker: string; everywhere: Everywhere }) {
  const { get } = useApi();
  const range = currentRange();
  useMarks(range);
  const path = worker ? `/api/v1/workers/${encodeURIComponent(worker)}/metrics` : "/api/v1/workers/metrics";
  const key = JSON.stringify(range);
  const series = usePoll(
    () => get<WorkerSeries>(path, { period: range.period, from: range.from, to: range.to, format: "columns", all_environments: everywhere }),
    [path, key, everywhere],
    range.from ? 0 : 5_000,
  );
  const shown = useMemo(() => (series.data ? chartsOf(series.data) : null), [series.data]);
  if (!shown) return <Failed error={series.error} />;
  return (
    <>
      {series.data?.shared && (
        <p class="legend">Some of these processes also serve other environments; the counts of those are left out.</p>
      )}
      <div class="charts">
        <Chart title="Throughput" lines={shown.throughput} format={rate} {...shown.shared} />
        <Chart title="Lag at pop" lines={shown.lag} format={duration} {...shown.shared} />
        <Chart title="Event-loop lag" lines={shown.loop} format={duration} {...shown.shared} />
        <Chart title="Pool and internal queue" lines={shown.pressure} format={count} {...shown.shared} />
      </div>
    </>
  );
}

function chartsOf(series: WorkerSeries) {
  const { time_ms: times, kind: kinds, figures } = series.columns;
  const line = (label: string, tone: number, key: string): Line => ({ label, tone, values: figures[key] ?? [] });
  return {
    shared: { times, kinds, onZoom: zoomTo },
    throughput: [line("pushes", 1, "pushes_per_s"), line("pops", 2, "pops_per_s"), line("acks", 4, "acks_per_s")],
    lag: [line("p50", 2, "lag_p50_ms"), line("p95", 1, "lag_p95_ms"), line("p99", 4, "lag_p99_ms"), line("worst", 3, "lag_max_ms")],
    loop: [line("mean", 2, "event_loop_lag_mean_ms"), line("worst", 3, "event_loop_lag_max_ms")],
    pressure: [line("free slots, fewest", 2, "free_slots_min"), line("internal queue, most", 1, "internal_queue_max"), line("backing off", 4, "backoff_max")],
  };
}
