// Where alerts are sent: alert channels with a test, what was sent lately, and silences.

import { useState } from "preact/hooks";
import type { Api } from "../api/http";
import type { AlertChannel, AlertRule, Me, Notification, Silence } from "../api/types";
import { amount, until } from "../lib/format";
import { mayAdminister, mayWrite } from "../lib/rights";
import { act } from "../state/act";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { Badge, Button, Dialog, Failed, Form, Sure, When, type Tone } from "../ui/bits";
import { QueueNames } from "../ui/queue-names";
import { Table, type Column } from "../ui/table";

const LOOKS = 60;
const LOOK_MS = 500;

/** Send a test in the same way as a real notification, and wait until it was delivered or refused. */
async function test({ send, get }: Api, channel: AlertChannel): Promise<void> {
  const { notification_id } = await send<{ notification_id: string }>("POST", `/api/v1/alert-channels/${encodeURIComponent(channel.name)}/test`);
  for (let look = 0; look < LOOKS; look++) {
    const { items } = await get<{ items: Notification[] }>("/api/v1/alert-notifications", { limit: 20 });
    const mine = items.find((one) => one.id === notification_id);
    if (mine?.state === "delivered") return;
    if (mine && (mine.state === "failed" || mine.last_error)) throw new Error(`The test did not arrive: ${mine.last_error ?? "it failed"}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
  throw new Error("The test is still on its way; look at the newest notifications.");
}

export function AlertChannels({ channels, me, refresh }: { channels: AlertChannel[]; me: Me; refresh: () => void }) {
  const api = useApi();
  const { send } = api;
  const [editing, setEditing] = useState<AlertChannel | "new" | null>(null);
  const remove = (channel: AlertChannel) =>
    act(`${channel.name}: removed`, async () => {
      await send("DELETE", `/api/v1/alert-channels/${encodeURIComponent(channel.name)}`);
      refresh();
    });
  const [testing, setTesting] = useState("");
  const ask = async (channel: AlertChannel) => {
    setTesting(channel.name);
    await act(`The test arrived at ${channel.name}`, () => test(api, channel));
    setTesting("");
    refresh();
  };
  const columns: Column<AlertChannel>[] = [
    { key: "name", label: "Channel", cell: (row) => row.name },
    { key: "kind", label: "Kind", cell: (row) => row.kind },
    { key: "where", label: "Where", cell: (row) => <code>{String(row.config["url"] ?? row.config["to"] ?? "")}</code> },
    { key: "state", label: "State", cell: (row) => (row.disabled_reason ? <Badge tone="bad">{row.disabled_reason}</Badge> : <Badge tone="good">on</Badge>) },
    {
      key: "actions",
      label: "",
      cell: (row) =>
        mayWrite(me) && (
          <span class="row">
            <button type="button" disabled={testing !== ""} onClick={() => ask(row)}>
              {testing === row.name ? "Testing…" : "Test"}
            </button>
            {mayAdminister(me) && (
              <>
                <button type="button" onClick={() => setEditing(row)}>
                  Change…
                </button>
                <Sure label="Remove…" class="danger" title={`Remove the alert channel ${row.name}?`} verb="Remove it" onSure={() => remove(row)}>
                  <p>Rules no longer send alerts there, and notifications that are on their way to it fail.</p>
                </Sure>
              </>
            )}
          </span>
        ),
    },
  ];
  return (
    <section class="panel" aria-label="Channels">
      <div class="page-head">
        <h2>Alert channels</h2>
        {mayAdminister(me) && (
          <button type="button" onClick={() => setEditing("new")}>
            New alert channel…
          </button>
        )}
      </div>
      <Table
        caption="Alert channels"
        rows={channels}
        columns={columns}
        rowKey={(row) => row.name}
        sort=""
        empty={
          <>
            <p>No channel yet: alerts are shown only on this page. Add a channel here, or by command:</p>
            <pre>weir alert-channel create ops slack --url https://hooks.slack.com/…</pre>
          </>
        }
      />
      <Sent />
      <Dialog open={editing !== null} title={editing === "new" ? "New alert channel" : "Change alert channel"} onClose={() => setEditing(null)}>
        {editing !== null && (
          <ChannelForm
            known={editing === "new" ? null : editing}
            onSaved={() => {
              setEditing(null);
              refresh();
            }}
          />
        )}
      </Dialog>
    </section>
  );
}

/** The fields of each kind; a list is typed with commas. */
const FIELDS: Record<string, { name: string; label: string; list?: boolean; number?: boolean; secret?: boolean; optional?: boolean; hint?: string }[]> = {
  slack: [{ name: "url", label: "Webhook URL", secret: true, hint: "https://hooks.slack.com/services/…" }],
  webhook: [
    { name: "url", label: "URL", hint: "https://example.com/alerts" },
    { name: "secrets", label: "Signing secrets, the current one first", list: true, secret: true, optional: true },
  ],
  email: [
    { name: "host", label: "Mail server" },
    { name: "port", label: "Port", number: true, optional: true, hint: "587" },
    { name: "tls", label: "Encryption (starttls, tls or none)", optional: true, hint: "starttls" },
    { name: "from", label: "Sender" },
    { name: "to", label: "Recipients, separated by commas", list: true },
    { name: "username", label: "Account", optional: true },
    { name: "password", label: "Password", secret: true, optional: true },
  ],
  apprise: [{ name: "url", label: "Apprise URL", secret: true, hint: "service://…" }],
};

function ChannelForm({ known, onSaved }: { known: AlertChannel | null; onSaved: () => void }) {
  const { send } = useApi();
  const [name, setName] = useState(known?.name ?? "");
  const [kind, setKind] = useState(known?.kind ?? "slack");
  const [values, setValues] = useState<Record<string, string>>({});
  const submit = async () => {
    const config: Record<string, unknown> = {};
    for (const field of FIELDS[kind] ?? []) {
      const text = (values[field.name] ?? "").trim();
      if (text) config[field.name] = field.list ? text.split(",").map((one) => one.trim()) : field.number ? Number(text) : text;
    }
    if (await act(`${name} saved`, () => send("PUT", `/api/v1/alert-channels/${encodeURIComponent(name)}`, { kind, config }))) onSaved();
  };
  return (
    <Form onSend={submit}>
      <label>
        Name
        <input required disabled={known !== null} value={name} onInput={(event) => setName(event.currentTarget.value)} placeholder="ops" />
      </label>
      <label>
        Kind
        <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          {Object.keys(FIELDS).map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      {FIELDS[kind]?.map((field) => {
        const shared = {
          autocomplete: "off",
          required: !field.optional,
          placeholder: field.hint ?? (field.optional ? "may be left out" : ""),
          value: values[field.name] ?? "",
          onInput: (event: { currentTarget: { value: string } }) => setValues({ ...values, [field.name]: event.currentTarget.value }),
        };
        return (
          <label key={field.name}>
            {field.label}
            {field.secret ? <input type="password" {...shared} /> : <input type="text" inputMode={field.number ? "numeric" : "text"} {...shared} />}
          </label>
        );
      })}
      {known && <small>Enter all fields again, because secrets cannot be read back.</small>}
      <button type="submit" class="primary">
        Save
      </button>
    </Form>
  );
}

const TONES: Record<Notification["state"], Tone> = { waiting: "calm", delivered: "good", failed: "bad", skipped: "calm" };

function Sent() {
  const { get } = useApi();
  const found = usePoll(() => get<{ items: Notification[] }>("/api/v1/alert-notifications", { limit: 20 }), [], 10_000);
  if (!found.data?.items.length) return null;
  const columns: Column<Notification>[] = [
    { key: "at", label: "When", cell: (row) => <When at={row.created_at_ms} /> },
    { key: "channel", label: "To", cell: (row) => row.channel },
    { key: "kind", label: "What", cell: (row) => row.kind },
    { key: "state", label: "State", cell: (row) => <Badge tone={TONES[row.state]}>{row.state}</Badge> },
    { key: "error", label: "Last error", cell: (row) => row.last_error ?? "" },
  ];
  return (
    <details>
      <summary>The newest {amount(found.data.items.length, "notification")}</summary>
      <Table caption="Notifications" rows={found.data.items} columns={columns} rowKey={(row) => row.id} sort="" />
    </details>
  );
}

export function Silences({ rules, me }: { rules: AlertRule[]; me: Me }) {
  const { get, send } = useApi();
  const found = usePoll(() => get<{ items: Silence[] }>("/api/v1/alert-silences"), [], 10_000);
  const [making, setMaking] = useState(false);
  const end = async (silence: Silence) => {
    await act("The silence is over", () => send("DELETE", `/api/v1/alert-silences/${silence.id}`));
    found.refresh();
  };
  const columns: Column<Silence>[] = [
    { key: "what", label: "Silenced", cell: (row) => `${row.rule_name ?? "every rule"}, ${row.queue ?? "every queue"}` },
    { key: "ends", label: "Ends", cell: (row) => until(row.ends_at_ms) },
    { key: "comment", label: "Why", cell: (row) => row.comment },
    { key: "by", label: "By", cell: (row) => <code>{row.created_by}</code> },
    {
      key: "actions",
      label: "",
      cell: (row) =>
        mayWrite(me) && (
          <Button onPress={() => end(row)}>End now</Button>
        ),
    },
  ];
  return (
    <section class="panel" aria-label="Silences">
      <div class="page-head">
        <h2>Silences</h2>
        {mayWrite(me) && (
          <button type="button" onClick={() => setMaking(true)}>
            New silence…
          </button>
        )}
      </div>
      <Failed error={found.error} />
      {found.data && <Table caption="Alert silences" rows={found.data.items} columns={columns} rowKey={(row) => row.id} sort="" empty={<p>None. During a silence alerts are recorded but not sent; alerts that outlast it are sent at its end.</p>} />}
      <Dialog open={making} title="New silence" onClose={() => setMaking(false)}>
        {making && (
          <SilenceForm
            rules={rules}
            onSaved={() => {
              setMaking(false);
              found.refresh();
            }}
          />
        )}
      </Dialog>
    </section>
  );
}

function SilenceForm({ rules, onSaved }: { rules: AlertRule[]; onSaved: () => void }) {
  const { send } = useApi();
  const [draft, setDraft] = useState({ minutes: "30", rule: "", queue: "", comment: "" });
  const set = (name: keyof typeof draft) => (event: { currentTarget: { value: string } }) => setDraft({ ...draft, [name]: event.currentTarget.value });
  const submit = async () => {
    const body = { for_ms: Math.round(Number(draft.minutes) * 60_000), rule_name: draft.rule || null, queue: draft.queue || null, comment: draft.comment };
    if (await act("The silence has begun", () => send("POST", "/api/v1/alert-silences", body))) onSaved();
  };
  return (
    <Form onSend={submit}>
      <label>
        Minutes
        <input type="number" required min="0.1" step="any" value={draft.minutes} onInput={set("minutes")} />
      </label>
      <label>
        Rule
        <select value={draft.rule} onChange={set("rule")}>
          <option value="">every rule</option>
          {rules.map((rule) => (
            <option key={rule.id}>{rule.name}</option>
          ))}
        </select>
      </label>
      <label>
        Queue
        <input value={draft.queue} onInput={set("queue")} list="queue-names" placeholder="every queue" />
      </label>
      <QueueNames />
      <label>
        Why
        <input maxLength={1000} value={draft.comment} onInput={set("comment")} placeholder="a deploy" />
      </label>
      <button type="submit" class="primary">
        Silence
      </button>
    </Form>
  );
}
