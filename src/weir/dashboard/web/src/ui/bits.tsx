// The small pieces that every page uses.

import type { ComponentChildren } from "preact";
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { ago, moment } from "../lib/format";
import { act, LINGERS_MS, toast, useHeld } from "../state/act";
import type { Problem } from "../api/http";

export type Tone = "good" | "warn" | "bad" | "calm";

export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

export function Stat({ label, value, note }: { label: string; value: ComponentChildren; note?: ComponentChildren }) {
  return (
    <div class="stat">
      <dt>{label}</dt>
      <dd>
        <b>{value}</b>
        {note ? <small>{note}</small> : null}
      </dd>
    </div>
  );
}

export function When({ at }: { at: number | string | null | undefined }) {
  if (at == null) return <span>–</span>;
  return (
    <time dateTime={new Date(at).toISOString()} title={moment(at)}>
      {ago(at)}
    </time>
  );
}

export function Failed({ error }: { error: Problem | null }) {
  if (!error) return null;
  return (
    <p class="failed" role="alert">
      {error.message}
    </p>
  );
}

export function Page({ title, actions, children }: { title: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <>
      <header class="page-head">
        <h1>{title}</h1>
        <div class="actions">{actions}</div>
      </header>
      {children}
    </>
  );
}

export function Loading() {
  return (
    <p class="loading" role="status">
      Loading…
    </p>
  );
}

/** The dialogs that are open, the newest last. What is behind it cannot be read, so it shows what is said. */
const dialogs = signal<object[]>([]);

export function Toasts({ inside }: { inside?: object }) {
  const isShown = dialogs.value.at(-1) === inside;
  return (
    <div class="toasts" role="status" aria-live="polite">
      {isShown && toast.value && <p class={`toast ${toast.value.isGood ? "good" : "bad"}`}>{toast.value.text}</p>}
    </div>
  );
}

type ButtonProps = { onPress: () => unknown; class?: string | undefined; disabled?: boolean; children: ComponentChildren };

/** A button for what a server does: it is held until the answer, and a moment longer. */
export function Button({ onPress, class: looks, disabled = false, children }: ButtonProps) {
  const { isHeld, hold } = useHeld();
  return (
    <button type="button" class={looks} disabled={disabled} aria-disabled={isHeld} onClick={() => void hold(onPress, LINGERS_MS)}>
      {children}
    </button>
  );
}

/** A form that is sent once at a time. */
export function Form({ onSend, class: looks = "form", children }: { onSend: () => unknown; class?: string; children: ComponentChildren }) {
  const { isHeld, hold } = useHeld();
  return (
    <form class={looks} aria-busy={isHeld} onSubmit={(event) => (event.preventDefault(), void hold(onSend))}>
      {children}
    </form>
  );
}

export function Dialog({ open, title, onClose, children }: { open: boolean; title: string; onClose: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  const self = useRef({}).current;
  useEffect(() => {
    const dialog = element.current!;
    if (open && !dialog.open) dialog.showModal();
    if (!open && dialog.open) dialog.close();
    if (!open) return;
    dialogs.value = [...dialogs.value, self];
    return () => void (dialogs.value = dialogs.value.filter((one) => one !== self));
  }, [open]);
  return (
    <dialog ref={element} aria-label={title} onClose={(event) => event.target === element.current && onClose()}>
      <header>
        <h2>{title}</h2>
        <button type="button" class="plain" aria-label="Close" onClick={onClose}>
          ×
        </button>
      </header>
      {open && children}
      {open && <Toasts inside={self} />}
    </dialog>
  );
}

type SureProps = { label: string; title: string; verb: string; class?: string; disabled?: boolean; onSure: () => Promise<boolean>; children: ComponentChildren };

/** A button for what cannot be taken back, with its question: it names the thing, which may have moved under the pointer. */
export function Sure({ label, title, verb, class: looks, disabled = false, onSure, children }: SureProps) {
  const [asking, setAsking] = useState(false);
  return (
    <>
      <button type="button" class={looks} disabled={disabled} onClick={() => setAsking(true)}>
        {label}
      </button>
      {asking && (
        <Dialog open title={title} onClose={() => setAsking(false)}>
          {children}
          <p class="row">
            <Button class="danger" onPress={async () => (await onSure()) && setAsking(false)}>
              {verb}
            </Button>
            <button type="button" onClick={() => setAsking(false)}>
              Keep it
            </button>
          </p>
        </Dialog>
      )}
    </>
  );
}

/** A secret that is shown only once. */
export function Secret({ title, text, onClose }: { title: string; text: string | null; onClose: () => void }) {
  return (
    <Dialog open={text !== null} title={title} onClose={onClose}>
      <p>It is shown only once. Copy it now, and keep it like a password.</p>
      <pre class="secret">{text}</pre>
      <Button onPress={() => act("Copied", () => navigator.clipboard.writeText(text ?? ""))}>Copy</Button>
    </Dialog>
  );
}
