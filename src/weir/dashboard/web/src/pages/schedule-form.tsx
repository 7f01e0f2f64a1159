// The form that makes a schedule or changes one that was made through the API.

import { useState } from "preact/hooks";
import type { Schedule } from "../api/types";
import { pretty, Raw } from "../lib/json";
import { act, say } from "../state/act";
import { useApi } from "../state/api";
import { Dialog, Form } from "../ui/bits";
import { QueueNames } from "../ui/queue-names";

const UNITS_MS: Record<string, number> = { seconds: 1_000, minutes: 60_000, hours: 3_600_000, days: 86_400_000 };

/** The largest unit that gives an interval without a fraction. */
function unitOf(every_ms: number): string {
  return Object.keys(UNITS_MS).findLast((unit) => every_ms % UNITS_MS[unit]! === 0) ?? "seconds";
}

function draftOf(known: Schedule | null) {
  const unit = known?.every_ms ? unitOf(known.every_ms) : "minutes";
  return {
    name: known?.name ?? "",
    queue: known?.queue ?? "",
    timing: known?.every_ms ? "interval" : "cron",
    cron: known?.cron ?? "",
    timezone: known?.timezone ?? "UTC",
    every: known?.every_ms ? `${known.every_ms / UNITS_MS[unit]!}` : "",
    unit,
    payload: pretty(known ? (known.payload ?? "null") : "{}"),
    missed: known?.missed ?? "skip",
    overlap: known?.overlap ?? "allow",
  };
}

type Draft = ReturnType<typeof draftOf>;

function bodyOf(draft: Draft) {
  const timing = draft.timing === "cron" ? { cron: draft.cron, timezone: draft.timezone || "UTC" } : { every_ms: Math.round(Number(draft.every) * UNITS_MS[draft.unit]!) };
  const payload = draft.payload || "{}";
  JSON.parse(payload); // only to learn whether it is JSON
  return { queue: draft.queue, ...timing, payload: new Raw(payload), missed: draft.missed, overlap: draft.overlap };
}

export function ScheduleDialog({ schedule, onClose, onSaved }: { schedule: Schedule | "new" | null; onClose: () => void; onSaved: () => void }) {
  return (
    <Dialog open={schedule !== null} title={schedule === "new" ? "New schedule" : "Change schedule"} onClose={onClose}>
      {schedule !== null && (
        <ScheduleForm
          known={schedule === "new" ? null : schedule}
          onSaved={() => {
            onSaved();
            onClose();
          }}
        />
      )}
    </Dialog>
  );
}

function ScheduleForm({ known, onSaved }: { known: Schedule | null; onSaved: () => void }) {
  const { send } = useApi();
  const [draft, setDraft] = useState(draftOf(known));
  const set = (name: keyof Draft) => (event: { currentTarget: { value: string } }) => setDraft({ ...draft, [name]: event.currentTarget.value });
  const submit = async () => {
    let body: ReturnType<typeof bodyOf>;
    try {
      body = bodyOf(draft);
    } catch {
      say("The payload is not JSON", false);
      return;
    }
    const path = "/api/v1/schedules";
    const save = () => (known ? send("PUT", `${path}/${encodeURIComponent(known.name)}`, body, known.revision) : send("POST", path, { name: draft.name, ...body }));
    if (await act(`${draft.name} saved`, save)) onSaved();
  };
  return (
    <Form onSend={submit}>
      <label>
        Name
        <input required disabled={known !== null} value={draft.name} onInput={set("name")} placeholder="nightly" />
      </label>
      <label>
        Queue
        <input required value={draft.queue} onInput={set("queue")} list="queue-names" placeholder="reports" />
      </label>
      <QueueNames />
      <label>
        It pushes
        <select value={draft.timing} onChange={set("timing")}>
          <option value="cron">at times, by cron</option>
          <option value="interval">at an interval</option>
        </select>
      </label>
      {draft.timing === "cron" ? <CronFields draft={draft} set={set} /> : <IntervalFields draft={draft} set={set} />}
      <label>
        Payload, JSON
        <textarea class="source" rows={4} value={draft.payload} onInput={set("payload")} />
      </label>
      <label>
        Ticks that were missed while nothing ran
        <select value={draft.missed} onChange={set("missed")}>
          <option value="skip">are skipped</option>
          <option value="last">are skipped, but for the last one</option>
          <option value="all">are all pushed</option>
        </select>
      </label>
      <label>
        While the message of the tick before is not done
        <select value={draft.overlap} onChange={set("overlap")}>
          <option value="allow">push the next one too</option>
          <option value="skip">skip the tick</option>
        </select>
      </label>
      <button type="submit" class="primary">
        Save
      </button>
    </Form>
  );
}

type Fields = { draft: Draft; set: (name: keyof Draft) => (event: { currentTarget: { value: string } }) => void };

function CronFields({ draft, set }: Fields) {
  return (
    <>
      <label>
        Minute, hour, day, month, day of the week
        <input required class="source" value={draft.cron} onInput={set("cron")} placeholder="0 3 * * *" />
      </label>
      <label>
        Time zone
        <input value={draft.timezone} onInput={set("timezone")} placeholder="UTC" />
      </label>
    </>
  );
}

function IntervalFields({ draft, set }: Fields) {
  return (
    <span class="row">
      <label>
        Every
        <input type="number" required min="0.001" step="any" value={draft.every} onInput={set("every")} />
      </label>
      <label>
        Unit
        <select value={draft.unit} onChange={set("unit")}>
          {Object.keys(UNITS_MS).map((unit) => (
            <option key={unit}>{unit}</option>
          ))}
        </select>
      </label>
    </span>
  );
}
