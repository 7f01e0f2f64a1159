// Redrives, purges and cancellations: a dry run comes first, then their progress is shown.

import { useEffect, useState } from "preact/hooks";
import { get, send } from "../api/http";
import type { Group, Me, Sample, Task } from "../api/types";
import { amount, count } from "../lib/format";
import { diffLines } from "../lib/diff";
import { mayWrite } from "../lib/rights";
import { usePoll } from "../state/poll";
import { act, Badge, Dialog, Failed, When, type Tone } from "../ui/bits";
import { QueueNames } from "../ui/queue-names";
import { Table, type Column } from "../ui/table";
import type { Chosen } from "./dead-letters";

const TONES: Record<string, Tone> = { completed: "good", running: "calm", pending: "calm", paused: "warn", failed: "bad", stopped_by_canary: "bad" };
const SHOWN_SAMPLES = 3;
const OPEN = new Set(["pending", "running", "paused", "stopped_by_canary"]);

export function Tasks({ me }: { me: Me }) {
  const tasks = usePoll(() => get<{ items: Task[] }>("/api/v1/dlq/tasks"), [], 1_000);
  const ask = async (task: Task, verb: string) => {
    await act(`${task.kind}: ${verb}`, () => send("POST", `/api/v1/dlq/tasks/${task.id}/${verb}`));
    tasks.refresh();
  };
  const columns: Column<Task>[] = [
    { key: "kind", label: "Task", cell: (row) => `${row.kind}${row.kind === "cancel" || row.kind === "replay" ? ` in ${String(row.filter["queue"])}` : ""}${row.dry_run ? " (dry run)" : ""}` },
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

function Progress({ task }: { task: Task }) {
  const label = `${count(task.scanned)} of ${count(task.expected)} looked at`;
  return (
    <>
      <progress max={Math.max(task.expected, 1)} value={task.state === "completed" ? Math.max(task.expected, 1) : task.scanned} aria-label={label} />
      <small>{label}</small>
    </>
  );
}

function Verbs({ task, ask }: { task: Task; ask: (task: Task, verb: string) => void }) {
  if (!OPEN.has(task.state)) return null;
  const held = task.state === "paused" || task.state === "stopped_by_canary";
  return (
    <span class="row">
      <button type="button" onClick={() => ask(task, held ? "resume" : "pause")}>
        {held ? "Resume" : "Pause"}
      </button>
      <button type="button" onClick={() => ask(task, "cancel")}>
        Cancel
      </button>
    </span>
  );
}

type Draft = { queue: string; fingerprint: string; expression: string; patch: string; rate: string; canary: string };

export function TaskDialog({ kind, chosen, groups, onClose }: { kind: "redrive" | "purge" | null; chosen: Chosen; groups: Group[]; onClose: () => void }) {
  const [draft, setDraft] = useState<Draft>({ ...chosen, expression: "", patch: "", rate: "", canary: "10" });
  const [counted, setCounted] = useState<Task | null>(null);
  useEffect(() => {
    setDraft({ ...chosen, expression: "", patch: "", rate: "", canary: "10" });
    setCounted(null);
  }, [kind, chosen.queue, chosen.fingerprint]);
  if (!kind) return <Dialog open={false} title="" onClose={onClose}>{null}</Dialog>;
  const set = (name: keyof Draft) => (event: { currentTarget: { value: string } }) => {
    setDraft({ ...draft, [name]: event.currentTarget.value });
    setCounted(null);
  };
  const path = `/api/v1/dlq/${kind}s`;
  const dryRun = async () => {
    await act("Counted", async () => setCounted(await followTask(await send<Task>("POST", path, bodyOf(kind, draft, true)))));
  };
  const start = async () => {
    if (await act(`${kind} started`, () => send("POST", path, bodyOf(kind, draft, false)))) onClose();
  };
  return (
    <Dialog open title={kind === "redrive" ? "Send dead letters back" : "Delete dead letters"} onClose={onClose}>
      <form class="form" onSubmit={(event) => (event.preventDefault(), void dryRun())}>
        <label>
          Queue
          <input value={draft.queue} onInput={set("queue")} list="queue-names" placeholder="any" />
        </label>
        <QueueNames />
        <label>
          Group
          <select value={draft.fingerprint} onChange={set("fingerprint")}>
            <option value="">any</option>
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
          <button type="button" class={kind === "purge" ? "danger" : "primary"} disabled={!counted || counted.matched === 0} onClick={start}>
            {counted ? `${kind === "redrive" ? "Redrive" : "Delete"} ${count(counted.matched)}` : "Dry run first"}
          </button>
        </div>
        {counted && counted.samples.length > 0 && <Samples task={counted} patched={draft.patch !== ""} />}
        {counted && (
          <p role="status">
            {amount(counted.matched, "letter")} {counted.matched === 1 ? "matches" : "match"}.
            {counted.skipped > 0 && ` ${count(counted.skipped)} would be skipped: ${counted.problem}`}
          </p>
        )}
      </form>
    </Dialog>
  );
}

/** Some of the dead letters that match, before and after the patch. */
function Samples({ task, patched }: { task: Task; patched: boolean }) {
  const found = usePoll(() => get<{ items: Sample[] }>(`/api/v1/dlq/tasks/${task.id}/samples`), [task.id], 0);
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
  const before = JSON.stringify(sample.payload, null, 2) ?? "";
  if (sample.patched === null) return <pre>{before}</pre>;
  return (
    <pre>
      {diffLines(before, JSON.stringify(sample.patched, null, 2)).map((line, i) => (
        <div key={i} class={line.kind === "+" ? "diff-add" : line.kind === "-" ? "diff-remove" : undefined}>
          {line.kind} {line.text}
        </div>
      ))}
    </pre>
  );
}

function bodyOf(kind: string, draft: Draft, dryRun: boolean): unknown {
  const filter: Record<string, string> = {};
  for (const name of ["queue", "fingerprint", "expression"] as const) if (draft[name]) filter[name] = draft[name];
  // The dry run has shown how many match, so that nobody takes everything by accident.
  const all = !dryRun && Object.keys(filter).length === 0;
  const body: Record<string, unknown> = { filter, all, dry_run: dryRun };
  if (draft.rate) body["rate_per_s"] = Number(draft.rate);
  if (kind === "redrive") body["canary"] = Number(draft.canary || 0);
  if (kind === "redrive" && draft.patch) body["patch"] = draft.patch;
  return body;
}

/** Wait until a task has ended, and report its progress through `tell`. */
export async function followTask(task: Task, tell: (task: Task) => void = () => undefined): Promise<Task> {
  for (let turn = 0; turn < 240 && OPEN.has(task.state); turn++) {
    tell(task);
    await new Promise((resolve) => setTimeout(resolve, 250));
    task = await get<Task>(`/api/v1/dlq/tasks/${task.id}`);
  }
  tell(task);
  if (task.state === "failed") throw new Error(task.note ?? "the task failed");
  return task;
}
