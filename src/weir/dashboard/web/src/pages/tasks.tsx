// Redrives, purges and cancellations: a dry run comes first, then their progress is shown.

import { useMemo, useState } from "preact/hooks";
import type { Group, Me, Sample, Task } from "../api/types";
import { count, exact } from "../lib/format";
import { diffLines } from "../lib/diff";
import { pretty } from "../lib/json";
import { mayWrite } from "../lib/rights";
import { useApi } from "../state/api";
import { act } from "../state/act";
import { useCounted } from "../state/counted";
import { usePoll } from "../state/poll";
import { Badge, Button, Failed, Form, Sure, When, type Tone } from "../ui/bits";
import { QueueNames } from "../ui/queue-names";
import { Table, type Column } from "../ui/table";
import type { Chosen } from "./dead-letters";

const TONES: Record<string, Tone> = { completed: "good", running: "calm", pending: "calm", paused: "warn", failed: "bad", stopped_by_canary: "bad" };
const SHOWN_SAMPLES = 3;
const SHOWN_LINES = 500;
const OPEN = new Set(["pending", "running", "paused", "stopped_by_canary"]);

export function Tasks({ me }: { me: Me }) {
  const { get, send } = useApi();
  const tasks = usePoll(() => get<{ items: Task[] }>("/api/v1/dlq/tasks"), [], 1_000);
  const ask = async (task: Task, verb: string) => {
    const isDone = await act(`${task.kind}: ${verb}`, () => send("POST", `/api/v1/dlq/tasks/${task.id}/${verb}`));
    tasks.refresh();
    return isDone;
  };
  const columns: Column<Task>[] = [
    { key: "kind", label: "Task", cell: nameOf },
    { key: "state", label: "State", cell: (row) => <Badge tone={TONES[row.state] ?? "calm"}>{row.state.replaceAll("_", " ")}</Badge> },
    { key: "progress", label: "Progress", cell: (row) => <Progress task={row} /> },
    { key: "done", label: "Done", numeric: true, cell: (row) => count(row.dry_run ? row.matched : row.done) },
    { key: "again", label: "Died again", numeric: true, cell: (row) => count(row.died_again) },
    { key: "note", label: "Note", cell: (row) => row.problem ?? row.note ?? "" },
    { key: "created", label: "Asked", cell: (row) => <When at={row.created_at_ms} /> },
    { key: "actions", label: "", cell: (row) => (!mayWrite(me) ? null : <Verbs task={row} ask={ask} />) },
  ];
  return (
    <section class="panel" aria-label="Tasks">
      <h2>Redrives, purges and cancellations</h2>
      <Failed error={tasks.error} />
      {tasks.data && <Table caption="Redrives, purges and cancellations" rows={tasks.data.items} columns={columns} rowKey={(row) => row.id} sort="" empty={<p>None yet. A redrive sends dead letters back to their queues, after a dry run that counts them.</p>} />}
    </section>
  );
}

/** How far a task is. */
export function looked(task: Task): string {
  return `${exact(task.scanned)} of ${exact(task.expected)} looked at`;
}

function Progress({ task }: { task: Task }) {
  const label = looked(task);
  return (
    <>
      <progress max={Math.max(task.expected, 1)} value={task.state === "completed" ? Math.max(task.expected, 1) : task.scanned} aria-label={label} />
      <small>{label}</small>
    </>
  );
}

function nameOf(task: Task): string {
  return `${task.kind}${task.kind === "cancel" || task.kind === "replay" ? ` in ${String(task.filter["queue"])}` : ""}${task.dry_run ? " (dry run)" : ""}`;
}

function Verbs({ task, ask }: { task: Task; ask: (task: Task, verb: string) => Promise<boolean> }) {
  if (!OPEN.has(task.state)) return null;
  const what = nameOf(task);
  return (
    <span class="row">
      {task.state === "stopped_by_canary" ? (
        <Sure label="Resume…" title={`Resume the ${what} although its canary died?`} verb="Send the others too" onSure={() => ask(task, "resume")}>
          <p>{task.note ?? "The messages that were sent first died again."}</p>
        </Sure>
      ) : (
        <Button onPress={() => ask(task, task.state === "paused" ? "resume" : "pause")}>{task.state === "paused" ? "Resume" : "Pause"}</Button>
      )}
      <Sure label="Cancel…" title={`Cancel the ${what}?`} verb="Cancel it" onSure={() => ask(task, "cancel")}>
        <p>
          {looked(task)}, {exact(task.done)} done. What is done stays done, and it cannot be resumed.
        </p>
      </Sure>
    </span>
  );
}

type Draft = { queue: string; fingerprint: string; expression: string; patch: string; rate: string; canary: string };

type Props = { kind: "redrive" | "purge"; chosen: Chosen; groups: Group[]; onClose: () => void };

export function TaskForm({ kind, chosen, groups, onClose }: Props) {
  const [draft, setDraft] = useState<Draft>({ ...chosen, expression: "", patch: "", rate: "", canary: "10" });
  const { counted, task, count: dryRun, start } = useCounted(`/api/v1/dlq/${kind}s`, selectionOf(kind, draft));
  const begin = async () => {
    const how = { ...(draft.rate && { rate_per_s: Number(draft.rate) }), ...(kind === "redrive" && { canary: Number(draft.canary || 0) }) };
    if (await act(`${kind} started`, () => start(how))) onClose();
  };
  const set = (name: keyof Draft) => (event: { currentTarget: { value: string } }) => {
    setDraft({ ...draft, [name]: event.currentTarget.value });
  };
  return (
      <Form onSend={() => act("Counted", dryRun)}>
        <label>
          Queue
          <input value={draft.queue} onInput={set("queue")} list="queue-names" placeholder="any" />
        </label>
        <QueueNames />
        <label>
          Group
          <select value={draft.fingerprint} onChange={set("fingerprint")}>
            <option value="">any</option>
            {draft.fingerprint && !groups.some((group) => group.fingerprint === draft.fingerprint) && <option value={draft.fingerprint}>the chosen group, {draft.fingerprint}</option>}
            {groups.map((group) => (
              <option key={group.fingerprint} value={group.fingerprint}>
                {count(group.dead_count)} dead: {group.template.slice(0, 80) || "(no error text)"}
              </option>
            ))}
          </select>
        </label>
        <label>
          Expression
          <input value={draft.expression} onInput={set("expression")} placeholder="payload.amount > 100" />
          <small>CEL over the letter: payload, error, headers, attempts …</small>
        </label>
        <label>
          Letters per second
          <input type="number" min="1" value={draft.rate} onInput={set("rate")} placeholder="as fast as possible" />
        </label>
        {kind === "redrive" && (
          <label>
            Patch
            <input value={draft.patch} onInput={set("patch")} placeholder={'{"currency": "EUR"}'} />
            <small>CEL whose result, an object, is merged into each payload; null removes a field. The dry run shows the effect.</small>
          </label>
        )}
        {kind === "redrive" && (
          <label>
            Canary
            <input type="number" min="0" max="1000" value={draft.canary} onInput={set("canary")} />
            <small>This many are sent first. If they die again, the others are not sent.</small>
          </label>
        )}
        <div class="row">
          <button type="submit">Dry run</button>
          <Button class={kind === "purge" ? "danger" : "primary"} disabled={!counted?.matched} onPress={begin}>
            {counted ? `${kind === "redrive" ? "Redrive" : "Delete"} ${exact(counted.matched)}` : "Dry run first"}
          </Button>
        </div>
        {task && !counted && <p role="status">{looked(task)}</p>}
        {counted && counted.samples.length > 0 && <Samples task={counted} patched={draft.patch !== ""} />}
        {counted && (
          <p role="status">
            {exact(counted.matched)} {counted.matched === 1 ? "letter matches" : "letters match"}.
            {counted.skipped > 0 && ` ${exact(counted.skipped)} would be skipped: ${counted.problem}`}
          </p>
        )}
      </Form>
  );
}

function selectionOf(kind: string, draft: Draft): object {
  const filter: Record<string, string> = {};
  for (const name of ["queue", "fingerprint", "expression"] as const) if (draft[name]) filter[name] = draft[name];
  return { filter, ...(kind === "redrive" && draft.patch && { patch: draft.patch }) };
}

/** Some of the dead letters that match, before and after the patch. */
function Samples({ task, patched }: { task: Task; patched: boolean }) {
  const { get } = useApi();
  const found = usePoll(() => get<{ items: Sample[] }>(`/api/v1/dlq/tasks/${task.id}/samples`, {}, ["items.payload", "items.patched"]), [task.id], 0);
  if (!found.data) return <Failed error={found.error} />;
  return (
    <section aria-label="Samples">
      <h3>{patched ? "What the patch does to samples" : "Samples"}</h3>
      {found.data.items.slice(0, SHOWN_SAMPLES).map((one) => (
        <div key={one.id} class="sample">
          <small>
            {one.queue} · <code>{one.id}</code> · {one.error.slice(0, 100)}
          </small>
          {one.problem && <p class="failed">The patch does not work here, so this letter would be skipped: {one.problem}</p>}
          <Payload sample={one} />
        </div>
      ))}
    </section>
  );
}

function Payload({ sample }: { sample: Sample }) {
  const lines = useMemo(() => {
    const before = pretty(sample.payload ?? "null");
    return diffLines(before, sample.patched === null ? before : pretty(sample.patched));
  }, [sample]);
  return (
    <pre>
      {lines.slice(0, SHOWN_LINES).map((line, i) => (
        <div key={i} class={line.kind === "+" ? "diff-add" : line.kind === "-" ? "diff-remove" : undefined}>
          {sample.patched !== null && `${line.kind} `}
          {line.text}
        </div>
      ))}
      {lines.length > SHOWN_LINES && `… ${exact(lines.length - SHOWN_LINES)} more lines`}
    </pre>
  );
}
