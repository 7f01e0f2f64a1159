// The log of a queue: messages that ended, found by key or an expression, and sent into a queue again.

import { useState } from "preact/hooks";
import type { LoggedMessage, LogPage, Me } from "../api/types";
import { count, duration, exact } from "../lib/format";
import { compact } from "../lib/json";
import { mayWrite } from "../lib/rights";
import { act } from "../state/act";
import { useApi } from "../state/api";
import { useCounted } from "../state/counted";
import { usePoll } from "../state/poll";
import { route, setQuery } from "../state/route";
import { Button, Dialog, Failed, Loading, When } from "../ui/bits";
import { Table, type Column } from "../ui/table";
import { messageLink, Pager } from "./messages";
import { looked } from "./tasks";

type Match = { key: string; where: string };
type ReplayProps = { queue: string; path: string; match: Match };

export function QueueLog({ queue, me }: { queue: string; me: Me }) {
  const { get } = useApi();
  const query = route.value.query;
  const [key = "", where = "", cursor = ""] = ["key", "where", "cursor"].map((name) => query.get(name) ?? "");
  const path = `/api/v1/queues/${encodeURIComponent(queue)}/log`;
  const log = usePoll(() => get<LogPage>(path, { key, where, cursor }, ["items.payload"]), [path, key, where, cursor], 5_000);
  const page = log.data;
  return (
    <section class="panel" aria-label="Log">
      {page && <p>{page.log_ms === null ? "This queue keeps no log now." : `Messages that ended are kept for ${duration(page.log_ms)}, with their payloads and headers.`}</p>}
      {page?.gaps.map((gap) => (
        <p key={gap.from_ms} role="note">
          Messages may be missing: {gap.reason}.
        </p>
      ))}
      <Search key={`${key} ${where}`} asked={{ key, where }} />
      {mayWrite(me) && <Replay queue={queue} path={path} match={{ key, where }} />}
      <Failed error={log.error} />
      {!page && !log.error && <Loading />}
      {page && <List messages={page.items} />}
      {page && <Pager cursor={cursor} next={page.next_cursor} short={page.items.length === 0 && page.next_cursor !== null} />}
    </section>
  );
}

function Search({ asked }: { asked: Match }) {
  const [key, setKey] = useState(asked.key);
  const [where, setWhere] = useState(asked.where);
  const submit = (event: Event) => {
    event.preventDefault();
    setQuery({ key, where, cursor: "" });
  };
  return (
    <form class="row search" role="search" onSubmit={submit}>
      <label class="row">
        Key
        <input type="search" value={key} onInput={(event) => setKey(event.currentTarget.value)} />
      </label>
      <label class="row">
        Expression
        <input type="search" value={where} size={36} placeholder="outcome == 'dead' && payload.amount > 100" onInput={(event) => setWhere(event.currentTarget.value)} />
      </label>
      <button type="submit">Find</button>
    </form>
  );
}

function List({ messages }: { messages: LoggedMessage[] }) {
  const columns: Column<LoggedMessage>[] = [
    { key: "number", label: "Number", numeric: true, cell: (row) => exact(row.number) },
    {
      key: "id",
      label: "Message",
      cell: (row) => (
        <a href={messageLink(row.id)}>
          <code>{row.id}</code>
        </a>
      ),
    },
    { key: "payload", label: "Payload", cell: (row) => <code title={`${count(row.life.payload_bytes)} bytes`}>{shown(row)}</code> },
    { key: "key", label: "Key", cell: (row) => row.life.key ?? "" },
    { key: "outcome", label: "Outcome", cell: (row) => row.life.outcome },
    { key: "attempts", label: "Attempts", numeric: true, cell: (row) => count(row.life.attempts) },
    { key: "ended", label: "Ended", cell: (row) => <When at={row.life.ended_at_ms} /> },
  ];
  return <Table caption="Messages in the log" rows={messages} columns={columns} rowKey={(row) => String(row.number)} sort="" empty={<p>No message here.</p>} />;
}

function shown(message: LoggedMessage): string {
  if (message.left_out) return "left out: it was too large";
  const text = message.payload_base64 ?? compact(message.payload ?? "null");
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}

/** A dry run first, then a bulk action of the servers. */
function Replay(props: ReplayProps) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        Replay…
      </button>
      <Dialog open={open} title="Send messages of the log into a queue" onClose={() => setOpen(false)}>
        <ReplayForm {...props} onDone={() => setOpen(false)} />
      </Dialog>
    </>
  );
}

function ReplayForm({ queue, path, match, onDone }: ReplayProps & { onDone: () => void }) {
  const [into, setInto] = useState(queue);
  const [rate, setRate] = useState("");
  const [canary, setCanary] = useState("");
  const filter = { ...(match.key && { key: match.key }), ...(match.where && { expression: match.where }) };
  const { counted, task, count: dryRun, finish } = useCounted(`${path}/replays`, { into, filter, all: !match.key && !match.where });
  const how = { into, ...(rate && { rate_per_s: Number(rate) }), ...(canary && { canary: Number(canary) }) };
  const replay = async () => (await act("Replayed", () => finish(how))) && onDone();
  return (
    <>
      <p>
        {match.key || match.where ? "Messages that the search finds" : "All messages of the log"} are sent, each once, if they have ended by now. If you close this dialog, the servers go on; the page of dead letters shows the
        progress.
      </p>
      <label>
        Into the queue
        <input type="text" value={into} onInput={(event) => setInto(event.currentTarget.value)} />
      </label>
      <label>
        Messages per second
        <input type="number" min="1" value={rate} onInput={(event) => setRate(event.currentTarget.value)} placeholder="as fast as possible" />
      </label>
      <label>
        Send this many first, and go on only if they succeed
        <input type="number" min="0" max="1000" value={canary} onInput={(event) => setCanary(event.currentTarget.value)} placeholder="none" />
      </label>
      {task && <p role="status">{task.note ?? (counted ? `${exact(counted.matched)} messages match.` : `${looked(task)}.`)}</p>}
      <p class="row">
        <Button onPress={() => act("Counted", dryRun)}>Dry run</Button>
        <Button class="primary" disabled={!counted?.matched} onPress={replay}>
          {counted ? `Replay ${exact(counted.matched)}` : "Dry run first"}
        </Button>
      </p>
    </>
  );
}
