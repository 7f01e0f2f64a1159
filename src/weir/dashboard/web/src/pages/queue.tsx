// One queue: its state now, its history or its messages, and the buttons to pause it or push to it.

import { useMemo, useState } from "preact/hooks";
import type { Api } from "../api/http";
import type { Explanation, Me, QueueNow, Series } from "../api/types";
import { count, duration, percent } from "../lib/format";
import { Raw } from "../lib/json";
import { mayWrite } from "../lib/rights";
import { onceKey } from "../state/act";
import { useMarks } from "../state/marks";
import { act } from "../state/act";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { href, route, setQuery } from "../state/route";
import { environment, environmentPath } from "../state/session";
import { Badge, Button, Dialog, Failed, Form, Loading, Page, Stat } from "../ui/bits";
import { Evidence } from "../ui/evidence";
import { MarkList } from "../ui/marks";
import { currentRange, PeriodPicker, shifted, type Range } from "../ui/period";
import { Fairness } from "./fairness";
import { Messages } from "./messages";
import { Charts } from "./queue-charts";
import { QueueLog } from "./queue-log";

const COMPARE = { yesterday: 1, "last week": 7 } as const;

export function Queue({ me }: { me: Me }) {
  const { get } = useApi();
  const name = route.value.path[5] ?? "";
  const tab = ["messages", "log"].find((one) => one === route.value.path[6]) ?? "history";
  const path = `/api/v1/queues/${encodeURIComponent(name)}`;
  const now = usePoll(() => get<QueueNow>(path), [path], 2_000);
  return (
    <Page title={name} actions={<Actions key={name} name={name} path={path} now={now.data} me={me} refresh={now.refresh} />}>
      <Failed error={now.error} />
      {now.data && <Now now={now.data} />}
      <Tabs name={name} shown={tab} log={tab === "log" || now.data?.definition?.log_ms != null} />
      {tab === "messages" ? (
        <Messages key={name} queue={name} me={me} />
      ) : tab === "log" ? (
        <QueueLog key={name} queue={name} me={me} />
      ) : (
        <>
          <Why path={path} />
          <History path={path} name={name} me={me} />
          <Fairness path={path} />
        </>
      )}
      <p>
        <a href={href(environmentPath(environment.value!, "dead-letters"), { queue: name })}>Dead letters of this queue</a>
      </p>
    </Page>
  );
}

function Tabs({ name, shown, log }: { name: string; shown: string; log: boolean }) {
  const tabs = { history: "History", messages: "Messages", ...(log && { log: "Log" }) };
  return (
    <nav class="tabs" aria-label="Parts of this queue">
      {Object.entries(tabs).map(([tab, label]) => (
        <a key={tab} href={href(environmentPath(environment.value!, "queue", name, ...(tab === "history" ? [] : [tab])))} aria-current={tab === shown ? "page" : undefined}>
          {label}
        </a>
      ))}
    </nav>
  );
}

function Now({ now }: { now: QueueNow }) {
  return (
    <section class="panel" aria-label="Now">
      <dl class="stats">
        <Stat label="Waiting" value={count(now.depth)} note={now.delayed ? `${count(now.delayed)} not due yet` : undefined} />
        <Stat label="Running" value={count(now.running)} note={now.limit == null ? "no limit" : `limit ${count(now.limit)}`} />
        <Stat label="Utilization" value={percent(now.utilization_pct == null ? null : now.utilization_pct / 100)} />
        <Stat label="Oldest waits" value={now.depth ? duration(now.oldest_age_ms) : "–"} />
        <Stat label="State" value={now.paused ? <Badge tone="warn">paused</Badge> : <Badge tone="good">open</Badge>} />
      </dl>
    </section>
  );
}

/** The verdict on the queue, from the explain route. */
function Why({ path }: { path: string }) {
  const { get } = useApi();
  const why = usePoll(() => get<Explanation>(`${path}/explain`), [path], 15_000);
  if (!why.data) return null;
  const { backed_up, recovered, summary, evidence_table, outlook } = why.data;
  return (
    <section class={`panel verdict ${backed_up ? "warn" : ""}`} aria-label="Verdict">
      <div>
        <b>{summary}</b>
        {recovered && <p class="recovered">{recovered}</p>}
        {backed_up ? (
          <Evidence rows={evidence_table} />
        ) : (
          <details>
            <summary>Figures</summary>
            <Evidence rows={evidence_table} />
          </details>
        )}
        <p class="outlook">{outlook}</p>
      </div>
    </section>
  );
}

function Actions({ name, path, now, me, refresh }: { name: string; path: string; now: QueueNow | null; me: Me; refresh: () => void }) {
  const { send } = useApi();
  const [pushing, setPushing] = useState(false);
  if (!mayWrite(me)) return null;
  const toggle = async () => {
    const verb = now?.paused ? "resume" : "pause";
    await act(`${name}: ${verb}d`, () => send("POST", `${path}/${verb}`));
    refresh();
  };
  return (
    <>
      <Button disabled={!now} onPress={toggle}>
        {now?.paused ? "Resume" : "Pause"}
      </Button>
      <button type="button" onClick={() => setPushing(true)}>
        Push a test message
      </button>
      <Dialog open={pushing} title={`Push to ${name}`} onClose={() => setPushing(false)}>
        <PushForm name={name} onClose={() => setPushing(false)} />
      </Dialog>
    </>
  );
}

function PushForm({ name, onClose }: { name: string; onClose: () => void }) {
  const { send } = useApi();
  const [text, setText] = useState('{"hello": "world"}');
  const [key, setKey] = useState("");
  const [wrong, setWrong] = useState("");
  // Whoever pushes the same again because no answer came does not push it twice.
  const once = useMemo(onceKey, [text, key]);
  const submit = async () => {
    try {
      JSON.parse(text); // only to learn whether it is JSON
    } catch {
      setWrong("This is not JSON.");
      return;
    }
    setWrong("");
    const item = { queue: name, ...(key && { key }), payload: new Raw(text), idempotency_key: once };
    if (await act("Pushed one message", () => send("POST", "/api/v1/push", { items: [item] }))) onClose();
  };
  return (
      <Form onSend={submit}>
        <label>
          Payload (JSON)
          <textarea class="source" rows={6} value={text} onInput={(event) => setText(event.currentTarget.value)} />
          {wrong && (
            <small class="failed" role="alert">
              {wrong}
            </small>
          )}
        </label>
        <label>
          Ordering key (optional)
          <input value={key} onInput={(event) => setKey(event.currentTarget.value)} />
        </label>
        <button class="primary" type="submit">
          Push
        </button>
      </Form>
  );
}

function History({ path, name, me }: { path: string; name: string; me: Me }) {
  const api = useApi();
  const range = currentRange();
  const marked = useMarks(range, name);
  const compare = route.value.query.get("compare") ?? "";
  const days = COMPARE[compare as keyof typeof COMPARE];
  const key = JSON.stringify(range);
  const series = usePoll(() => fetchSeries(api, path, range), [path, key], range.from ? 0 : 5_000);
  const before = usePoll<Series | null>(
    async () => (days ? fetchSeries(api, path, shifted(range, days)) : null),
    [path, key, days],
    days ? 60_000 : 0,
  );
  return (
    <>
      <div class="page-head">
        <PeriodPicker />
        <label class="row">
          Compare with
          <select value={compare} onChange={(event) => setQuery({ compare: event.currentTarget.value })}>
            <option value="">nothing</option>
            {Object.keys(COMPARE).map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      </div>
      <Failed error={series.error} />
      {series.data ? (
        <Charts series={series.data} before={days && before.data ? { series: before.data, label: compare, days } : null} />
      ) : (
        !series.error && (
          <div class="charts-place">
            <Loading />
          </div>
        )
      )}
      <MarkList {...marked} mayAdd={mayWrite(me)} />
    </>
  );
}

function fetchSeries({ get }: Api, path: string, range: Range): Promise<Series> {
  return get<Series>(`${path}/metrics`, { period: range.period, from: range.from, to: range.to, format: "columns" });
}
