// Channels with their consumers, and the endpoints that answered 410 and receive nothing.

import { useState } from "preact/hooks";
import type { Channel, DisabledEndpoint, Me } from "../api/types";
import { mayAdminister, mayWrite } from "../lib/rights";
import { act } from "../state/act";
import { secret } from "../state/secret";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { href } from "../state/route";
import { environment, environmentPath } from "../state/session";
import { Badge, Button, Dialog, Failed, Form, Loading, Page, Sure, When } from "../ui/bits";
import { QueueNames } from "../ui/queue-names";
import { Table, type Column } from "../ui/table";

export function Channels({ me }: { me: Me }) {
  const { get, send } = useApi();
  const found = usePoll(() => get<{ items: Channel[] }>("/api/v1/channels"), [], 10_000);
  const [editing, setEditing] = useState<Channel | "new" | null>(null);
  const newToken = (path: string, name: string) =>
    act(`${name}: a new token`, async () => (secret.value = (await send<{ token: string }>("POST", `/api/v1/channels/${path}/tokens`)).token));
  const remove = (channel: Channel) =>
    act(`${channel.name}: removed`, async () => {
      await send("DELETE", `/api/v1/channels/${encodeURIComponent(channel.id)}`);
      found.refresh();
    });
  const columns: Column<Channel>[] = [
    {
      key: "name",
      label: "Channel",
      cell: (row) => (
        <>
          {row.name} <small>{row.id}</small>
        </>
      ),
    },
    { key: "consumers", label: "Consumers", cell: (row) => <Consumers channel={row} me={me} newToken={newToken} /> },
    {
      key: "actions",
      label: "",
      cell: (row) =>
        mayAdminister(me) && (
          <span class="row">
            <button type="button" onClick={() => setEditing(row)}>
              Change…
            </button>
            <Button onPress={() => newToken(encodeURIComponent(row.id), row.name)}>New token</Button>
            <Sure label="Remove…" class="danger" title={`Remove the channel ${row.name}?`} verb="Remove it" onSure={() => remove(row)}>
              <p>Nobody can publish to it any more. The queues of its consumers and their dead letters stay.</p>
            </Sure>
          </span>
        ),
    },
  ];
  return (
    <Page
      title="Channels"
      actions={
        mayAdminister(me) && (
          <button type="button" onClick={() => setEditing("new")}>
            New channel…
          </button>
        )
      }
    >
      <Failed error={found.error} />
      {!found.data && !found.error && <Loading />}
      {found.data && (
        <section class="panel" aria-label="Channels">
          <Table
            caption="Channels and consumers"
            rows={found.data.items}
            columns={columns}
            rowKey={(row) => row.id}
            sort=""
            empty={
              <>
                <p>No channel yet. A message that is published to a channel goes to the queue of each of its consumers:</p>
                <pre>weir channel create order-events --name "Order events" --consumer billing=payments</pre>
              </>
            }
          />
        </section>
      )}
      <Endpoints me={me} />
      <ChannelDialog channel={editing} onClose={() => setEditing(null)} onSaved={found.refresh} />
    </Page>
  );
}

function Consumers({ channel, me, newToken }: { channel: Channel; me: Me; newToken: (path: string, name: string) => Promise<boolean> }) {
  if (!channel.consumers.length) return <>none: published messages go to no queue</>;
  return (
    <ul class="plain-list">
      {channel.consumers.map((one) => (
        <li key={one.id} class="row">
          {one.name} <small>{one.id}</small> → <a href={href(environmentPath(environment.value!, "queue", one.queue))}>{one.queue}</a>
          {mayAdminister(me) && (
            <Button onPress={() => newToken(`${encodeURIComponent(channel.id)}/consumers/${encodeURIComponent(one.id)}`, one.name)}>New token</Button>
          )}
        </li>
      ))}
    </ul>
  );
}

type Draft = { id: string; name: string; consumers: { id: string; name: string; queue: string }[] };
/** A row with any text is meant; it needs its id and its queue. */
function isFilled(one: Draft["consumers"][number]): boolean {
  return Boolean(one.id || one.name || one.queue);
}

const EMPTY: Draft = { id: "", name: "", consumers: [{ id: "", name: "", queue: "" }] };

function ChannelDialog({ channel, onClose, onSaved }: { channel: Channel | "new" | null; onClose: () => void; onSaved: () => void }) {
  return (
    <Dialog open={channel !== null} title={channel === "new" ? "New channel" : "Change channel"} onClose={onClose}>
      {channel !== null && <ChannelForm key={channel === "new" ? "" : channel.id} known={channel === "new" ? null : channel} onClose={onClose} onSaved={onSaved} />}
    </Dialog>
  );
}

function ChannelForm({ known, onClose, onSaved }: { known: Channel | null; onClose: () => void; onSaved: () => void }) {
  const { send } = useApi();
  const [draft, setDraft] = useState<Draft>(known ?? EMPTY);
  const change = (at: number, field: "id" | "name" | "queue") => (event: { currentTarget: { value: string } }) =>
    setDraft({ ...draft, consumers: draft.consumers.map((one, i) => (i === at ? { ...one, [field]: event.currentTarget.value } : one)) });
  const submit = async () => {
    const consumers = draft.consumers.filter(isFilled).map((one) => ({ ...one, name: one.name || one.id }));
    const body = { name: draft.name || draft.id, consumers };
    if (!(await act(`${body.name} saved`, () => send("PUT", `/api/v1/channels/${encodeURIComponent(draft.id)}`, body)))) return;
    onSaved();
    onClose();
  };
  return (
    <Form onSend={submit}>
      <label>
        Id
        <input required disabled={known !== null} value={draft.id} onInput={(event) => setDraft({ ...draft, id: event.currentTarget.value })} placeholder="order-events" />
      </label>
      <label>
        Name
        <input value={draft.name} onInput={(event) => setDraft({ ...draft, name: event.currentTarget.value })} placeholder="Order events" />
      </label>
      <fieldset>
        <legend>Consumers</legend>
        {draft.consumers.map((one, i) => (
          <span key={i} class="row">
            <input aria-label={`Id of consumer ${i + 1}`} required={isFilled(one)} value={one.id} onInput={change(i, "id")} placeholder="billing" />
            <input aria-label={`Name of consumer ${i + 1}`} value={one.name} onInput={change(i, "name")} placeholder="Billing" />
            <input aria-label={`Queue of consumer ${i + 1}`} required={isFilled(one)} value={one.queue} onInput={change(i, "queue")} list="queue-names" placeholder="payments" />
            <button type="button" aria-label={`Remove consumer ${i + 1}`} onClick={() => setDraft({ ...draft, consumers: draft.consumers.filter((_, at) => at !== i) })}>
              Remove
            </button>
          </span>
        ))}
        <QueueNames />
        <button type="button" onClick={() => setDraft({ ...draft, consumers: [...draft.consumers, { id: "", name: "", queue: "" }] })}>
          One more consumer
        </button>
      </fieldset>
      <button type="submit" class="primary">
        Save
      </button>
    </Form>
  );
}

function Endpoints({ me }: { me: Me }) {
  const { get, send } = useApi();
  const found = usePoll(() => get<{ items: DisabledEndpoint[] }>("/api/v1/disabled-endpoints"), [], 10_000);
  const enable = async (url: string) => {
    await act(`${url}: enabled`, () => send("POST", "/api/v1/disabled-endpoints/enable", { url }));
    found.refresh();
  };
  const columns: Column<DisabledEndpoint>[] = [
    { key: "url", label: "Endpoint", cell: (row) => <code>{row.url}</code> },
    { key: "why", label: "Why", cell: (row) => <Badge tone="bad">{row.reason}</Badge> },
    { key: "at", label: "Disabled", cell: (row) => <When at={row.disabled_at_ms} /> },
    {
      key: "actions",
      label: "",
      cell: (row) =>
        mayWrite(me) && (
          <Button onPress={() => enable(row.url)}>Enable</Button>
        ),
    },
  ];
  return (
    <section class="panel" aria-label="Disabled endpoints">
      <h2>Endpoints that receive nothing</h2>
      <Failed error={found.error} />
      {found.data && <Table caption="Endpoints that answered 410" rows={found.data.items} columns={columns} rowKey={(row) => row.url} sort="" empty={<p>None. An endpoint that answers 410 is disabled and shown here; its messages wait until it is enabled.</p>} />}
    </section>
  );
}
