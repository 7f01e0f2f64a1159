// The actions on a message that waits, each after a confirmation.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { act } from "../state/act";
import { useApi } from "../state/api";
import { Dialog, Form } from "../ui/bits";

export type Verb = "run" | "reschedule" | "priority" | "cancel";

type Props = { id: string; verb: Verb | null; onClose: () => void; onDone: (verb: Verb) => void };

const TITLES: Record<Verb, string> = {
  run: "Run it now",
  reschedule: "Reschedule it",
  priority: "Change its priority",
  cancel: "Cancel it",
};
const SAID: Record<Verb, string> = { run: "It is available now", reschedule: "Rescheduled", priority: "Its priority is changed", cancel: "Cancelled" };

export function TouchDialog({ id, verb, onClose, onDone }: Props) {
  const { send } = useApi();
  const [delay, setDelay] = useState("5");
  const [priority, setPriority] = useState("9");
  if (!verb) return null;
  const body = verb === "reschedule" ? { delay_ms: Math.round(Number(delay) * 60_000) } : verb === "priority" ? { priority: Number(priority) } : undefined;
  const submit = async () => {
    if (await act(SAID[verb], () => send("POST", `/api/v1/messages/${id}/${verb}`, body))) {
      onClose();
      onDone(verb);
    }
  };
  return (
    <Dialog open title={TITLES[verb]} onClose={onClose}>
      <Form onSend={submit}>
        <p>
          Message <code>{id}</code>
        </p>
        {verb === "run" && <p>It will be handed out as soon as its turn comes.</p>}
        {verb === "reschedule" && <Field label="Minutes from now" value={delay} min="0" step="any" onInput={setDelay} />}
        {verb === "priority" && <Field label="Priority (9 is served first)" value={priority} min="0" max="9" step="1" onInput={setPriority} />}
        {verb === "cancel" && <p>It is removed for good. If a worker works on it, its lease is revoked.</p>}
        <button class={verb === "cancel" ? "danger" : "primary"} type="submit">
          {TITLES[verb]}
        </button>
      </Form>
    </Dialog>
  );
}

type FieldProps = { label: ComponentChildren; value: string; min: string; max?: string; step: string; onInput: (value: string) => void };

function Field({ label, value, onInput, ...bounds }: FieldProps) {
  return (
    <label>
      {label}
      <input type="number" required value={value} {...bounds} onInput={(event) => onInput(event.currentTarget.value)} />
    </label>
  );
}
