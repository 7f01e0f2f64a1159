// One message: its state, the reasons of its wait as one bar, its attempts, payload, headers and timeline.

import { useState } from "preact/hooks";
import type { Attempt, Life, Me, MessageNow, Relative, WaitingMessage, Why } from "../api/types";
import { count, duration, moment, until } from "../lib/format";
import { pretty } from "../lib/json";
import { mayWrite } from "../lib/rights";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { go, href, route } from "../state/route";
import { environment, environmentPath } from "../state/session";
import { Badge, Failed, Loading, Page, Stat, When, type Tone } from "../ui/bits";
import { Steps } from "../ui/steps";
import { Table, type Column } from "../ui/table";
import { LifeBar } from "../ui/life-bar";
import { WaitBar } from "../ui/wait-bar";
import { TouchDialog, type Verb } from "./message-actions";
import { messageLink } from "./messages";

const TONES: Record<string, Tone> = { done: "good", dead: "bad", retrying: "warn", blocked: "warn", redriven: "warn", cancelled: "warn" };

export function Message({ me }: { me: Me }) {
  const id = route.value.path[5] ?? "";
  return <Shown key={id} id={id} me={me} />;
}

function Shown({ id, me }: { id: string; me: Me }) {
  const { get } = useApi();
  const path = `/api/v1/messages/${encodeURIComponent(id)}`;
  const found = usePoll(() => get<MessageNow>(path, {}, ["message.payload", "result", "progress"]), [path], 2_000);
  const now = found.data;
  return (
    <Page title={<Title id={id} now={now} />} actions={now?.message && mayWrite(me) && <Verbs id={id} now={now} refresh={found.refresh} />}>
      <Failed error={found.error} />
      {!found.data && !found.error && <Loading />}
      {now && (
        <>
          <Facts now={now} />
          {(now.message || now.state === "queued") && <Waited path={path} />}
          {now.life && <Lived life={now.life} />}
          {now.state === "landing" && <p role="status">If it ended just now, its life will be here in a second or two.</p>}
          {(now.parent || now.children.length > 0) && <Relatives now={now} />}
          <Told title="Result" value={now.result} />
          <Told title="Progress" value={now.progress} />
          {now.attempts.length > 0 && <Attempts attempts={now.attempts} />}
          {now.message && <Payload message={now.message} />}
          <section class="panel" aria-label="Timeline">
            <h2>Timeline</h2>
            <Steps steps={now.items} />
          </section>
        </>
      )}
    </Page>
  );
}

function Title({ id, now }: { id: string; now: MessageNow | null }) {
  if (!now?.queue) return <>Message {id}</>;
  return (
    <>
      <a href={href(environmentPath(environment.value!, "queue", now.queue, "messages"))}>{now.queue}</a> / {id}
    </>
  );
}

function Verbs({ id, now, refresh }: { id: string; now: MessageNow; refresh: () => void }) {
  const [verb, setVerb] = useState<Verb | null>(null);
  const state = now.state;
  const done = (what: Verb) => {
    // A cancelled message waits no more, so go to the messages that do.
    if (what === "cancel" && now.queue) go(environmentPath(environment.value!, "queue", now.queue, "messages"));
    else refresh();
  };
  return (
    <>
      {(state === "scheduled" || state === "retrying") && (
        <button type="button" onClick={() => setVerb("run")}>
          Run now…
        </button>
      )}
      {state !== "leased" && (
        <>
          <button type="button" onClick={() => setVerb("reschedule")}>
            Reschedule…
          </button>
          <button type="button" onClick={() => setVerb("priority")}>
            Priority…
          </button>
        </>
      )}
      <button type="button" class="danger" onClick={() => setVerb("cancel")}>
        Cancel…
      </button>
      <TouchDialog id={id} verb={verb} onClose={() => setVerb(null)} onDone={done} />
    </>
  );
}

function Facts({ now }: { now: MessageNow }) {
  const message = now.message;
  return (
    <section class="panel" aria-label="Now">
      <dl class="stats">
        <Stat label="State" value={<Badge tone={TONES[now.state] ?? "calm"}>{now.state}</Badge>} note={now.operation_id && `in operation ${now.operation_id}`} />
        {message && (
          <>
            <Stat label="Key" value={message.key ?? "–"} />
            <Stat label="Priority" value={count(message.priority)} />
            <Stat label="Handed out" value={message.attempts === 1 ? "once" : `${count(message.attempts)} times`} />
            <Stat label="Messages before it" value={count(message.ahead)} />
            {message.held ? (
              <Stat label="Held by" value={message.held.consumer} note={`until ${moment(message.held.until_ms)}`} />
            ) : (
              <Stat label="Due" value={until(message.available_at_ms)} note={moment(message.available_at_ms)} />
            )}
          </>
        )}
      </dl>
      {now.trace_id && (
        <p>
          Trace <TraceId now={now} />
        </p>
      )}
      {message?.behind_id && (
        <p>
          Waits behind <a href={messageLink(message.behind_id)}>{message.behind_id}</a>, the head of its key.
        </p>
      )}
      {message?.last_error && (
        <>
          <h3>Last error</h3>
          <pre>{message.last_error}</pre>
        </>
      )}
    </section>
  );
}

function TraceId({ now }: { now: MessageNow }) {
  const id = <code>{now.trace_id}</code>;
  return now.trace_url ? (
    <a href={now.trace_url} target="_blank" rel="noreferrer">
      {id}
    </a>
  ) : (
    id
  );
}

function Relatives({ now }: { now: MessageNow }) {
  const rows = [...(now.parent ? [{ role: "Parent", ...now.parent }] : []), ...now.children.map((child) => ({ role: "Child", ...child }))];
  const columns: Column<Relative & { role: string }>[] = [
    { key: "role", label: "Relative", cell: (row) => row.role },
    { key: "kind", label: "How", cell: (row) => row.kind },
    {
      key: "id",
      label: "Message",
      cell: (row) => (
        <a href={messageLink(row.message_id)}>
          <code>{row.message_id}</code>
        </a>
      ),
    },
    { key: "queue", label: "Queue", cell: (row) => row.queue ?? "" },
    { key: "made", label: "Made", cell: (row) => row.at_ms !== null && <When at={row.at_ms} /> },
  ];
  return (
    <section class="panel" aria-label="Relatives">
      <h2>Relatives</h2>
      <Table caption="Messages that this one came from, or that came from it" rows={rows} columns={columns} rowKey={(row) => `${row.role} ${row.message_id}`} sort="" />
      {now.more_children && <p>It has more children than these.</p>}
    </section>
  );
}

function Lived({ life }: { life: Life }) {
  return (
    <section class="panel" aria-label="Its life">
      <h2>Lived {duration(life.ended_at_ms - life.enqueued_at_ms)}</h2>
      <LifeBar life={life} />
      <dl class="stats">
        <Stat label="Ended" value={life.outcome} note={life.reason ?? moment(life.ended_at_ms)} />
        <Stat label="Key" value={life.key ?? "–"} />
        <Stat label="Handed out" value={life.attempts === 1 ? "once" : `${count(life.attempts)} times`} />
        <Stat label="Handler ran" value={life.handler_ms === null ? "unknown" : duration(life.handler_ms)} note={life.handler_ms === null ? `leased ${duration(life.leased_ms)}` : null} />
        <Stat label="Payload" value={`${count(life.payload_bytes)} bytes`} />
      </dl>
      {life.blocked_by_id && (
        <p>
          It waited behind <a href={messageLink(life.blocked_by_id)}>{life.blocked_by_id}</a>.
        </p>
      )}
    </section>
  );
}

function Told({ title, value }: { title: string; value: string | null }) {
  if (value === null) return null;
  return (
    <section class="panel" aria-label={title}>
      <h2>{title}</h2>
      <pre>{pretty(value)}</pre>
    </section>
  );
}

function Waited({ path }: { path: string }) {
  const { get } = useApi();
  const why = usePoll(() => get<Why>(`${path}/why`), [path], 2_000);
  if (!why.data) return null;
  return (
    <section class="panel" aria-label="Why it waited">
      <h2>Waited {duration(why.data.waited_ms)}</h2>
      <WaitBar parts={why.data.parts} />
      {why.data.leased_ms > 0 && <p>It was also leased for {duration(why.data.leased_ms)} in earlier attempts.</p>}
    </section>
  );
}

function Attempts({ attempts }: { attempts: Attempt[] }) {
  const columns: Column<Attempt>[] = [
    { key: "attempt", label: "Attempt", numeric: true, cell: (row) => row.attempt },
    { key: "ending", label: "Ended", cell: (row) => <Badge tone={row.ending === "done" ? "good" : row.ending === "cancelled" ? "warn" : "bad"}>{row.ending}</Badge> },
    { key: "started", label: "Started", cell: (row) => <When at={row.started_at_ms} /> },
    { key: "took", label: "Took", numeric: true, cell: (row) => duration(row.finished_at_ms - row.started_at_ms) },
    { key: "worker", label: "Worker", cell: (row) => row.worker },
    { key: "error", label: "Error", cell: (row) => row.error },
  ];
  return (
    <section class="panel" aria-label="Attempts">
      <h2>Attempts</h2>
      <Table caption="Attempts that workers recorded" rows={attempts} columns={columns} rowKey={(row) => `${row.attempt} ${row.started_at_ms}`} sort="" />
    </section>
  );
}

function Payload({ message }: { message: WaitingMessage }) {
  return (
    <section class="panel" aria-label="Payload">
      <h2>Payload ({count(message.payload_bytes)} bytes)</h2>
      <pre>{message.payload_base64 ?? pretty(message.payload ?? "null")}</pre>
      {Object.keys(message.headers).length > 0 && (
        <>
          <h3>Headers</h3>
          <pre>{JSON.stringify(message.headers, null, 2)}</pre>
        </>
      )}
    </section>
  );
}
