// The messages of a queue: their number per state, a search by key, text or id, and actions on each.

import { useState } from "preact/hooks";
import type { ListedMessage, Me, MessageList, MessageState, Operation } from "../api/types";
import { ago, count, until } from "../lib/format";
import { mayWrite } from "../lib/rights";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { go, href, route, setQuery } from "../state/route";
import { environment, environmentPath } from "../state/session";
import { Failed, Loading, When } from "../ui/bits";
import { Table, type Column } from "../ui/table";
import { CancelMatching } from "./cancel-matching";
import { TouchDialog, type Verb } from "./message-actions";

const STATES: MessageState[] = ["ready", "scheduled", "retrying", "blocked", "leased", "queued"];
const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export function messageLink(id: string): string {
  return href(environmentPath(environment.value!, "message", id));
}

export function Messages({ queue, me }: { queue: string; me: Me }) {
  const { get } = useApi();
  const query = route.value.query;
  const state = STATES.find((name) => name === query.get("state")) ?? "ready";
  const [key, text, cursor] = ["key", "text", "cursor"].map((name) => query.get(name) ?? "");
  const searched = state === "queued" ? {} : { key, text };
  const path = `/api/v1/queues/${encodeURIComponent(queue)}/messages`;
  const list = usePoll(() => get<MessageList>(path, { state, cursor, ...searched }), [path, state, key, text, cursor], 3_000);
  const known = list.data?.state === state ? list.data : null;
  return (
    <section class="panel" aria-label="Messages">
      <States state={state} counts={list.data?.counts} />
      <Search key={`${key} ${text}`} askedKey={key ?? ""} askedText={text ?? ""} disabled={state === "queued"} />
      {mayWrite(me) && state !== "queued" && (key || text) && <CancelMatching path={path} state={state} match={{ ...(key && { key }), ...(text && { text }) }} onDone={list.refresh} />}
      <Failed error={list.error} />
      {!known && !list.error && <Loading />}
      {known && (known.state === "queued" ? <QueuedList operations={known.operations} /> : <List messages={known.items} me={me} refresh={list.refresh} />)}
      {known && <Pager cursor={cursor ?? ""} next={known.next_cursor} short={known.items.length === 0 && known.next_cursor !== null} />}
    </section>
  );
}

function States({ state, counts }: { state: MessageState; counts: MessageList["counts"] | undefined }) {
  return (
    <div class="segments" role="group" aria-label="State">
      {STATES.map((name) => (
        <button key={name} type="button" aria-pressed={name === state} onClick={() => setQuery({ state: name === "ready" ? "" : name, cursor: "" })}>
          {name} {count(counts?.[name])}
        </button>
      ))}
    </div>
  );
}

function Search({ askedKey, askedText, disabled }: { askedKey: string; askedText: string; disabled: boolean }) {
  const [key, setKey] = useState(askedKey);
  const [text, setText] = useState(askedText);
  const submit = (event: Event) => {
    event.preventDefault();
    if (ID.test(text.trim())) go(environmentPath(environment.value!, "message", text.trim().toLowerCase()));
    else setQuery({ key, text, cursor: "" });
  };
  return (
    <form class="row search" role="search" onSubmit={submit}>
      <label class="row">
        Key
        <input type="search" value={key} disabled={disabled} onInput={(event) => setKey(event.currentTarget.value)} />
      </label>
      <label class="row">
        Text in the payload, or an id
        <input type="search" value={text} disabled={disabled} size={36} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <button type="submit" disabled={disabled}>
        Find
      </button>
    </form>
  );
}

function List({ messages, me, refresh }: { messages: ListedMessage[]; me: Me; refresh: () => void }) {
  const [chosen, setChosen] = useState<{ id: string; verb: Verb } | null>(null);
  const columns: Column<ListedMessage>[] = [
    {
      key: "id",
      label: "Message",
      cell: (row) => (
        <a href={messageLink(row.message_id)}>
          <code>{row.message_id}</code>
        </a>
      ),
    },
    { key: "payload", label: "Payload", cell: (row) => <Preview message={row} /> },
    { key: "key", label: "Key", cell: (row) => row.key ?? "" },
    { key: "priority", label: "Priority", numeric: true, cell: (row) => row.priority },
    { key: "attempts", label: "Attempts", numeric: true, cell: (row) => count(row.attempts) },
    { key: "when", label: "When", cell: (row) => <Due message={row} /> },
    { key: "error", label: "Last error", cell: (row) => row.last_error ?? "" },
    {
      key: "actions",
      label: "",
      cell: (row) =>
        mayWrite(me) && (
          <span class="row">
            {(row.state === "scheduled" || row.state === "retrying") && (
              <button type="button" onClick={() => setChosen({ id: row.message_id, verb: "run" })}>
                Run now…
              </button>
            )}
            <button type="button" onClick={() => setChosen({ id: row.message_id, verb: "cancel" })}>
              Cancel…
            </button>
          </span>
        ),
    },
  ];
  return (
    <>
      <Table caption="Messages of this state" rows={messages} columns={columns} rowKey={(row) => row.message_id} sort="" empty={<p>No message here.</p>} />
      <TouchDialog id={chosen?.id ?? ""} verb={chosen?.verb ?? null} onClose={() => setChosen(null)} onDone={refresh} />
    </>
  );
}

function Preview({ message }: { message: ListedMessage }) {
  const whole = new TextEncoder().encode(message.preview).length >= message.payload_bytes;
  return (
    <code title={`${count(message.payload_bytes)} bytes`}>
      {message.preview}
      {whole ? "" : "…"}
    </code>
  );
}

function Due({ message }: { message: ListedMessage }) {
  if (message.held) return <span title={`until ${new Date(message.held.until_ms).toISOString()}`}>held by {message.held.consumer}</span>;
  if (message.state === "scheduled" || message.state === "retrying") return <span>{until(message.available_at_ms)}</span>;
  return <span>enqueued {ago(message.enqueued_at_ms)}</span>;
}

function QueuedList({ operations }: { operations: Operation[] }) {
  const columns: Column<Operation>[] = [
    { key: "id", label: "Operation", cell: (row) => <code>{row.id}</code> },
    { key: "status", label: "Status", cell: (row) => row.status },
    { key: "partition", label: "Key", cell: (row) => row.partition ?? "" },
    { key: "messages", label: "Messages", numeric: true, cell: (row) => count(row.messages) },
    { key: "created", label: "Asked", cell: (row) => <When at={row.created_ms} /> },
    { key: "error", label: "Waits for", cell: (row) => row.error_message ?? "" },
  ];
  return <Table caption="Operations with messages for this queue" rows={operations} columns={columns} rowKey={(row) => row.id} sort="" empty={<p>No message waits in an operation.</p>} />;
}

export function Pager({ cursor, next, short }: { cursor: string; next: string | null; short: boolean }) {
  if (!cursor && !next) return null;
  return (
    <p class="row">
      {short && <span>No match among the messages that were searched so far.</span>}
      {cursor && (
        <button type="button" onClick={() => setQuery({ cursor: "" }, { replace: false })}>
          First page
        </button>
      )}
      {next && (
        <button type="button" onClick={() => setQuery({ cursor: next }, { replace: false })}>
          {short ? "Look further" : "Next page"}
        </button>
      )}
    </p>
  );
}
