// Audits, now and in the past: whether the charts show everything that the queues counted.

import type { Audit, DriftingQueue, Me, PipelineAudit } from "../api/types";
import { amount, count, duration, exact, moment } from "../lib/format";
import { mayOperate } from "../lib/rights";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { Badge, Failed } from "../ui/bits";
import { Chart } from "../ui/chart";
import { Table, type Column } from "../ui/table";

const SHOWN = 100;
/** Audits of the first minutes follow each other quickly, and a chart of them shows nothing. */
const CHARTED_MS = 10 * 60_000;

export function Audits({ me }: { me: Me }) {
  const { get } = useApi();
  const everywhere = mayOperate(me) ? "true" : undefined;
  const polled = usePoll(() => get<PipelineAudit>("/api/v1/pipeline/audit", { limit: SHOWN, all_environments: everywhere }), [everywhere], 30_000);
  const found = polled.data;
  return (
    <section class="panel" aria-label="Audits">
      <h2>Audits</h2>
      <Failed error={polled.error} />
      {found && <Newest audits={found.items} latest={found.latest} />}
      {found && found.drifting.length > 0 && <Drifting rows={found.drifting} />}
      {found && <Past audits={found.items} />}
    </section>
  );
}

/** Whether the charts are right, by the newest complete audit; and why the newest audit could not finish, if so. */
function Newest({ audits, latest }: { audits: Audit[]; latest: Audit | null }) {
  if (!latest) return <p>There was no audit yet. A running pipeline audits at its start and every ten minutes.</p>;
  const complete = audits.find((audit) => audit.drift !== null);
  return (
    <>
      {latest.drift === null && (
        <p>
          <Badge tone="warn">incomplete</Badge> The newest audit, at {moment(latest.started_at_ms)}, could not finish: {latest.reason}.
        </p>
      )}
      {complete && complete.drift === 0 && (
        <p>
          <Badge tone="good">drift 0</Badge> At {moment(complete.started_at_ms)} the charts showed everything that the queues counted.
        </p>
      )}
      {complete && complete.drift !== 0 && (
        <p>
          <Badge tone="bad">drift {exact(complete.drift)}</Badge> At {moment(complete.started_at_ms)} the charts were wrong by {exact(complete.drift)} counts that no gap explains. The messages themselves are not affected.
        </p>
      )}
    </>
  );
}

function Drifting({ rows }: { rows: DriftingQueue[] }) {
  const columns: Column<DriftingQueue>[] = [
    { key: "queue", label: "Queue", cell: (row) => row.queue },
    { key: "environment", label: "Environment", cell: (row) => `${row.organization} / ${row.project} / ${row.environment}` },
    { key: "drift", label: "Drift", numeric: true, cell: (row) => exact(row.drift) },
    { key: "text", label: "What is wrong", cell: (row) => row.text },
  ];
  return <Table caption="Queues with drift" rows={rows} columns={columns} rowKey={(row) => [row.organization, row.project, row.environment, row.queue].join("/")} sort="" empty={null} />;
}

function Past({ audits }: { audits: Audit[] }) {
  if (!audits.length) return null;
  const inOrder = [...audits].reverse();
  const columns: Column<Audit>[] = [
    { key: "at", label: "At", cell: (row) => moment(row.started_at_ms) },
    { key: "drift", label: "Drift", numeric: true, cell: (row) => (row.drift === null ? <Badge tone="warn">not known</Badge> : exact(row.drift)) },
    { key: "queues", label: "Queues", numeric: true, cell: (row) => count(row.queues) },
    { key: "held", label: "Pipeline held for", numeric: true, cell: (row) => (row.held_ms === null ? "–" : duration(row.held_ms)) },
    { key: "reason", label: "Why not known", cell: (row) => row.reason },
  ];
  return (
    <>
      {inOrder.at(-1)!.started_at_ms - inOrder[0]!.started_at_ms > CHARTED_MS && (
        <Chart
          title="Drift by audit"
          times={inOrder.map((audit) => audit.started_at_ms)}
          kinds={inOrder.map((audit) => (audit.drift === null ? "unknown" : "measured"))}
          lines={[{ label: "drift", tone: 3, step: true, values: inOrder.map((audit) => audit.drift) }]}
          format={exact}
        />
      )}
      <details>
        <summary>The newest {amount(audits.length, "audit")}</summary>
        <Table caption="Past audits" rows={audits} columns={columns} rowKey={(row) => String(row.number)} sort="" empty={null} />
      </details>
    </>
  );
}
