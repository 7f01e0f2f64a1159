// Redrives, purges and cancellations: a dry run comes first, then their progress is shown.

import { useEffect, useState } from "preact/hooks";
import { get, send } from "../api/http";
import type { Me, Task } from "../api/types";
import { count } from "../lib/format";
import { mayWrite } from "../lib/rights";
import { usePoll } from "../state/poll";
import { act, Badge, Dialog, Failed, When, type Tone } from "../ui/bits";
import { Table, type Column } from "../ui/table";
import type { Chosen } from "./dead-letters";

const TONES: Record<string, Tone> = { completed: "good", running: "calm", pending: "calm", paused: "warn", failed: "bad", stopped_by_canary: "bad" };
const OPEN = new Set(["pending", "running", "paused", "stopped_by_canary"]);

export function Tasks({ me }: { me: Me }) {
  const tasks = usePoll(() => get<{ items: Task[] }>("/api/v1/dlq/tasks"), [], 1_000);
  const ask = async (task: Task, verb: string) => {
    await act(`${task.kind}: ${verb}`, () => send("POST", `/api/v1/dlq/tasks/${task.id}/${verb}`));
    tasks.refresh();
  };
  const columns: Column<Task>[] = [
    { key: "kind", label: "Task", cell: (row) => `${row.kind}${row.kind === "cancel" ? ` in ${String(row.filter["queue"])}` : ""}${row.dry_run ? " (dry run)" : ""}` },
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
      {tasks.data && <Table caption="Redrives, purges and cancellations" rows={tasks.data.items} columns={columns} rowKey={(row) => row.id} sort="" empty={<p>None yet.</p>} />}
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

type Draft = { queue: string; fingerprint: string; expression: string; rate: string; canary: string };

export function TaskDialog({ kind, chosen, onClose }: { kind: "redrive" | "purge" | null; chosen: Chosen; onClose: () => void }) {
  const [draft, setDraft] = useState<Draft>({ ...chosen, expression: "", rate: "", canary: "10" });
  const [counted, setCounted] = useState<Task | null>(null);
  useEffect(() => {
    setDraft({ ...chosen, expression: "", rate: "", canary: "10" });
    setCounted(null);
  }, [kind, chosen.queue, chosen.fingerprint]);
  if (!kind) return <Dialog open={false} title="" onClose={onClose}>{null}</Dialog>;
  const set = (name: keyof Draft) => (event: { currentTarget: { value: string } }) => {
    setDraft({ ...draft, [name]: event.currentTarget.value });
    setCounted(null);
  };
  const path = `/api/v1/dlq/${kind}s`;
  const dryRun = async () => {
    await act("Counted", async () => setCounted(await followed(await send<Task>("POST", path, bodyOf(kind, draft, true)))));
  };
  const start = async () => {
    if (await act(`${kind} started`, () => send("POST", path, bodyOf(kind, draft, false)))) onClose();
  };
  return (
    <Dialog open title={kind === "redrive" ? "Send dead letters back" : "Delete dead letters"} onClose={onClose}>
      <form class="form" onSubmit={(event) => (event.preventDefault(), void dryRun())}>
        <label>
          Queue
          <input value={draft.queue} onInput={set("queue")} placeholder="any" />
        </label>
        <label>
          Fingerprint
          <input value={draft.fingerprint} onInput={set("fingerprint")} placeholder="any" />
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
            Canary
            <input type="number" min="0" max="1000" value={draft.canary} onInput={set("canary")} />
            <small>This many go first. If they die again, the rest stay here.</small>
          </label>
        )}
        <div class="row">
          <button type="submit">Dry run</button>
          <button type="button" class={kind === "purge" ? "danger" : "primary"} disabled={!counted || counted.matched === 0} onClick={start}>
            {counted ? `${kind === "redrive" ? "Redrive" : "Delete"} ${count(counted.matched)}` : "Dry run first"}
          </button>
        </div>
        {counted && (
          <p role="status">
            {count(counted.matched)} letters match.
            {counted.skipped > 0 && ` ${count(counted.skipped)} would be skipped: ${counted.problem}`}
          </p>
        )}
      </form>
    </Dialog>
  );
}

function bodyOf(kind: string, draft: Draft, dryRun: boolean): unknown {
  const filter: Record<string, string> = {};
  for (const name of ["queue", "fingerprint", "expression"] as const) if (draft[name]) filter[name] = draft[name];
  // The dry run has told how many these are, so that nobody means everything by accident.
  const all = !dryRun && Object.keys(filter).length === 0;
  const body: Record<string, unknown> = { filter, all, dry_run: dryRun };
  if (draft.rate) body["rate_per_s"] = Number(draft.rate);
  if (kind === "redrive") body["canary"] = Number(draft.canary || 0);
  return body;
}

/** Wait until a task has ended, and tell how far it is; a dry run only counts. */
export async function followed(task: Task, tell: (task: Task) => void = () => undefined): Promise<Task> {
  for (let turn = 0; turn < 240 && OPEN.has(task.state); turn++) {
    tell(task);
    await new Promise((resolve) => setTimeout(resolve, 250));
    task = await get<Task>(`/api/v1/dlq/tasks/${task.id}`);
  }
  tell(task);
  if (task.state === "failed") throw new Error(task.note ?? "the task failed");
  return task;
}
