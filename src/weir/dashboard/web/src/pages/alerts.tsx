// Firing alerts with their causes, rules, alert channels, silences, and past alerts.

import { useState } from "preact/hooks";
import type { Alert, AlertChannel, AlertMetric, AlertRule, Me } from "../api/types";
import { duration } from "../lib/format";
import { mayWrite } from "../lib/rights";
import { act } from "../state/act";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { href } from "../state/route";
import { environment, environmentPath } from "../state/session";
import { Badge, Button, Dialog, Failed, Loading, Page, Sure, When } from "../ui/bits";
import { Evidence } from "../ui/evidence";
import { Table, type Column } from "../ui/table";
import { AlertChannels, Silences } from "./alert-channels";
import { RuleForm } from "./alert-rule";

/** As many as the API lists at once. */
const MOST = 500;

export function Alerts({ me }: { me: Me }) {
  const { get } = useApi();
  const [editing, setEditing] = useState<AlertRule | "new" | null>(null);
  const firing = usePoll(() => get<{ items: Alert[] }>("/api/v1/alerts", { state: "active", limit: MOST }), [], 5_000);
  const over = usePoll(() => get<{ items: Alert[] }>("/api/v1/alerts", { state: "resolved" }), [], 15_000);
  const rules = usePoll(() => get<{ items: AlertRule[] }>("/api/v1/alert-rules"), [], 15_000);
  const channels = usePoll(() => get<{ items: AlertChannel[] }>("/api/v1/alert-channels"), [], 30_000);
  const metrics = usePoll(() => get<{ items: AlertMetric[] }>("/api/v1/alert-metrics"), [], 0);
  return (
    <Page
      title="Alerts"
      actions={
        mayWrite(me) && (
          <button type="button" onClick={() => setEditing("new")}>
            New rule…
          </button>
        )
      }
    >
      <Failed error={firing.error ?? over.error ?? rules.error ?? channels.error ?? metrics.error} />
      {firing.data && <Active alerts={firing.data.items} me={me} refresh={firing.refresh} />}
      {rules.data && <Rules rules={rules.data.items} me={me} edit={setEditing} refresh={rules.refresh} />}
      {channels.data && <AlertChannels channels={channels.data.items} me={me} refresh={channels.refresh} />}
      <Silences rules={rules.data?.items ?? []} me={me} />
      {over.data && <History alerts={over.data.items} />}
      <Dialog open={editing !== null} title={editing === "new" ? "New rule" : "Change rule"} onClose={() => setEditing(null)}>
        {/* Without their units the numbers of a rule mean something else. */}
        {metrics.data && channels.data && editing ? (
          <RuleForm rule={editing} metrics={metrics.data.items} channels={channels.data.items} onClose={() => setEditing(null)} onSaved={rules.refresh} />
        ) : (
          <Loading />
        )}
      </Dialog>
    </Page>
  );
}

function Where({ queue }: { queue: string | null }) {
  if (!queue) return <>all queues</>;
  return <a href={href(environmentPath(environment.value!, "queue", queue))}>{queue}</a>;
}

function Active({ alerts, me, refresh }: { alerts: Alert[]; me: Me; refresh: () => void }) {
  const { send } = useApi();
  const ask = async (alert: Alert, verb: string, said: string) => {
    const isDone = await act(`${alert.rule_name}: ${said}`, () => send("POST", `/api/v1/alerts/${alert.id}/${verb}`));
    refresh();
    return isDone;
  };
  return (
    <section class="panel" aria-label="Active alerts">
      <h2>Firing now</h2>
      {!alerts.length && <p class="empty">Nothing fires.</p>}
      {alerts.length === MOST && <p role="note">These are the newest {MOST}; more may fire.</p>}
      {alerts.map((alert) => (
        <article key={alert.id} class="panel verdict bad">
          <div>
            <h3>
              {alert.rule_name} · <Where queue={alert.queue} />
            </h3>
            <p>
              <b>{alert.summary}.</b> Fired <When at={alert.fired_at_ms} />: {alert.condition}. Now it is {alert.value_text}.
              {alert.unknown_since_ms && <Badge tone="warn">telemetry is stale</Badge>}
            </p>
            <Evidence rows={alert.evidence_table} />
            {alert.acknowledged_at_ms ? (
              <p>
                Seen by {alert.acknowledged_by} <When at={alert.acknowledged_at_ms} />
              </p>
            ) : null}
            {mayWrite(me) && (
              <p class="row">
                <Button disabled={alert.acknowledged_at_ms !== null} onPress={() => ask(alert, "acknowledge", "acknowledged")}>
                  Acknowledge
                </Button>
                <Sure label="Resolve…" title={`Resolve ${alert.rule_name} of ${alert.queue ?? "all queues"}?`} verb="Resolve it" onSure={() => ask(alert, "resolve", "resolved")}>
                  <p>Its channels are told that it is over. It fires again if its condition holds again.</p>
                </Sure>
              </p>
            )}
          </div>
        </article>
      ))}
    </section>
  );
}

function Rules({ rules, me, edit, refresh }: { rules: AlertRule[]; me: Me; edit: (rule: AlertRule) => void; refresh: () => void }) {
  const { send } = useApi();
  const remove = (rule: AlertRule) =>
    act(`${rule.name} removed`, async () => {
      await send("DELETE", `/api/v1/alert-rules/${rule.id}`);
      refresh();
    });
  const columns: Column<AlertRule>[] = [
    { key: "name", label: "Rule", cell: (row) => row.name },
    { key: "when", label: "Fires when", cell: (row) => row.condition },
    { key: "queue", label: "Where", cell: (row) => <Where queue={row.queue} /> },
    { key: "channels", label: "To", cell: (row) => row.channels.join(", ") || "this page" },
    { key: "state", label: "", cell: (row) => (row.enabled ? <Badge tone="good">on</Badge> : <Badge tone="calm">off</Badge>) },
    {
      key: "actions",
      label: "",
      cell: (row) =>
        !mayWrite(me) || row.origin === "spec" ? (
          row.origin === "spec" && <small>from the spec</small>
        ) : (
          <span class="row">
            <button type="button" onClick={() => edit(row)}>
              Change…
            </button>
            <Sure label="Remove…" class="danger" title={`Remove the rule ${row.name}?`} verb="Remove it" onSure={() => remove(row)}>
              <p>What it has fired for is resolved, and its channels are told so.</p>
            </Sure>
          </span>
        ),
    },
  ];
  return (
    <section class="panel" aria-label="Rules">
      <h2>Rules</h2>
      <Table caption="Alert rules" rows={rules} columns={columns} rowKey={(row) => row.id} sort="" empty={<p>No rule yet. A good first one: the age of the oldest message over 300 seconds, for every queue.</p>} />
    </section>
  );
}

function History({ alerts }: { alerts: Alert[] }) {
  const columns: Column<Alert>[] = [
    { key: "rule", label: "Rule", cell: (row) => row.rule_name },
    { key: "queue", label: "Where", cell: (row) => <Where queue={row.queue} /> },
    { key: "cause", label: "Cause", cell: (row) => <span title={row.summary}>{row.cause.replaceAll("_", " ")}</span> },
    { key: "fired", label: "Fired", cell: (row) => <When at={row.fired_at_ms} /> },
    { key: "lasted", label: "Lasted", numeric: true, cell: (row) => duration((row.resolved_at_ms ?? row.fired_at_ms) - row.fired_at_ms) },
  ];
  return (
    <section class="panel" aria-label="History">
      <h2>Before</h2>
      <Table caption="Resolved alerts" rows={alerts} columns={columns} rowKey={(row) => row.id} sort="" empty={<p>Nothing has fired before.</p>} />
    </section>
  );
}
