// Operations that were accepted and wait, and the pressure on the servers.

import type { FullPartition, Me, Operation, OperationStats } from "../api/types";
import { amount, count, duration, percent, rate } from "../lib/format";
import { mayWrite } from "../lib/rights";
import { act } from "../state/act";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { route, setQuery } from "../state/route";
import { Badge, Button, Failed, Page, Stat, Sure, When, type Tone } from "../ui/bits";
import { Table, type Column } from "../ui/table";

const TONES: Record<Operation["status"], Tone> = { pending: "calm", processing: "calm", completed: "good", failed: "bad", cancelled: "warn" };
const DECISIONS: Record<OperationStats["system_health"]["decision"], Tone> = { execute: "good", queue: "warn", reject: "bad" };

/** How many operations are listed. */
const MOST = 100;

export function Operations({ me }: { me: Me }) {
  const { get } = useApi();
  const status = route.value.query.get("status") ?? "";
  const stats = usePoll(() => get<OperationStats>("/api/v1/operations/stats"), [], 2_000);
  const list = usePoll(() => get<{ operations: Operation[] }>("/api/v1/operations", { status, limit: MOST }), [status], 2_000);
  return (
    <Page title="Operations">
      <Failed error={stats.error} />
      {stats.data && <Health health={stats.data.system_health} />}
      {stats.data && stats.data.fullest_partitions.length > 0 && <Fullest partitions={stats.data.fullest_partitions} />}
      <section class="panel" aria-label="Queued operations">
        <label class="row">
          Status
          <select value={status} onChange={(event) => setQuery({ status: event.currentTarget.value })}>
            <option value="">all</option>
            {Object.keys(TONES).map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <Failed error={list.error} />
        {list.data?.operations.length === MOST && <p role="note">These are the newest {MOST}; there may be more.</p>}
        {list.data && <List operations={list.data.operations} me={me} refresh={list.refresh} />}
      </section>
    </Page>
  );
}

function Health({ health }: { health: OperationStats["system_health"] }) {
  return (
    <section class="panel" aria-label="Pressure">
      <dl class="stats">
        <Stat label="Decision on a push" value={<Badge tone={DECISIONS[health.decision]}>{health.decision}</Badge>} />
        <Stat label="Utilization" value={percent(health.pool_utilization)} />
        <Stat label="In flight" value={count(health.in_flight)} note={`limit ${count(health.limit)}`} />
        <Stat label="Waiting for PostgreSQL" value={count(health.pool_waiting)} />
        <Stat label="Loop lag" value={duration(health.event_loop_lag_ms)} />
        <Stat label="Queued" value={count(health.queue_depth)} />
        <Stat label="Drains at" value={rate(health.drain_per_second)} />
      </dl>
    </section>
  );
}

function Fullest({ partitions }: { partitions: FullPartition[] }) {
  const columns: Column<FullPartition>[] = [
    { key: "queue", label: "Queue", cell: (row) => row.queue },
    { key: "partition", label: "Partition", cell: (row) => row.partition ?? "" },
    { key: "operations", label: "Operations", numeric: true, cell: (row) => count(row.operations) },
    { key: "messages", label: "Messages", numeric: true, cell: (row) => count(row.messages) },
    { key: "age", label: "Oldest", numeric: true, cell: (row) => duration(row.oldest_age_ms) },
    { key: "error", label: "Waits for", cell: (row) => row.last_error ?? "" },
    { key: "at", label: "Last error", cell: (row) => (row.last_error_at_ms == null ? "" : <When at={row.last_error_at_ms} />) },
  ];
  return (
    <section class="panel" aria-label="Fullest partitions">
      <h2>Fullest partitions</h2>
      <Table caption="Partitions with the most operations" rows={partitions} columns={columns} rowKey={(row) => JSON.stringify([row.queue, row.partition])} sort="" empty={null} />
    </section>
  );
}

function List({ operations, me, refresh }: { operations: Operation[]; me: Me; refresh: () => void }) {
  const { send } = useApi();
  const ask = async (row: Operation, verb: string) => {
    const isDone = await act(`${row.operation_type}: ${verb}`, () => send("POST", `/api/v1/operations/${row.id}/${verb}`));
    refresh();
    return isDone;
  };
  const columns: Column<Operation>[] = [
    { key: "type", label: "Operation", cell: (row) => <span title={row.id}>{row.operation_type}</span> },
    { key: "status", label: "Status", cell: (row) => <Badge tone={TONES[row.status]}>{row.status}</Badge> },
    { key: "queue", label: "Queue", cell: (row) => row.queue },
    { key: "partition", label: "Partition", cell: (row) => row.partition ?? "" },
    { key: "messages", label: "Messages", numeric: true, cell: (row) => count(row.messages) },
    { key: "created", label: "Asked", cell: (row) => <When at={row.created_ms} /> },
    { key: "latency", label: "Took", numeric: true, cell: (row) => duration(row.latency_seconds * 1000) },
    { key: "retries", label: "Retries", numeric: true, cell: (row) => count(row.retry_count) },
    { key: "error", label: "Error", cell: (row) => row.error_message ?? "" },
    {
      key: "actions",
      label: "",
      cell: (row) =>
        !mayWrite(me) ? null : row.status === "pending" ? (
          <Sure label="Cancel…" title={`Cancel this ${row.operation_type} in ${row.queue}?`} verb="Cancel it" onSure={() => ask(row, "cancel")}>
            <p>
              Operation <code>{row.id}</code> with {amount(row.messages, "message")}. It is not executed.
            </p>
          </Sure>
        ) : row.status === "failed" ? (
          <Button onPress={() => ask(row, "retry")}>Retry</Button>
        ) : null,
    },
  ];
  return (
    <Table
      caption="Operations and their status"
      rows={operations}
      columns={columns}
      rowKey={(row) => row.id}
      sort=""
      empty={<p>Nothing was queued. Under load, pushes that cannot be executed at once are answered 202 and wait here.</p>}
    />
  );
}
