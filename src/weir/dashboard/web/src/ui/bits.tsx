// The small pieces that every page uses.

import type { ComponentChildren } from "preact";
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ago, moment } from "../lib/format";
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

export const toast = signal<{ text: string; tone: Tone } | null>(null);
let fading: ReturnType<typeof setTimeout> | undefined;

export function say(text: string, tone: Tone = "good"): void {
  toast.value = { text, tone };
  clearTimeout(fading);
  fading = setTimeout(() => (toast.value = null), 6_000);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toast.value && <p class={`toast ${toast.value.tone}`}>{toast.value.text}</p>}
    </div>
  );
}

/** Run an action of the reader and say how it ended. */
export async function act(what: string, action: () => Promise<unknown>): Promise<boolean> {
  try {
    await action();
    say(what);
    return true;
  } catch (error) {
    say(error instanceof Error ? error.message : String(error), "bad");
    return false;
  }
}

export function Dialog({ open, title, onClose, children }: { open: boolean; title: string; onClose: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current!;
    if (open && !dialog.open) dialog.showModal();
    if (!open && dialog.open) dialog.close();
  }, [open]);
  return (
    <dialog ref={element} aria-label={title} onClose={onClose}>
      <header>
        <h2>{title}</h2>
        <button type="button" class="plain" aria-label="Close" onClick={onClose}>
          ×
        </button>
      </header>
      {open && children}
    </dialog>
  );
}

/** A question before something that cannot be taken back. */
export function Confirm({ open, title, verb, onClose, onSure, children }: { open: boolean; title: string; verb: string; onClose: () => void; onSure: () => void; children: ComponentChildren }) {
  return (
    <Dialog open={open} title={title} onClose={onClose}>
      {children}
      <p class="row">
        <button type="button" class="danger" onClick={onSure}>
          {verb}
        </button>
        <button type="button" onClick={onClose}>
          Keep it
        </button>
      </p>
    </Dialog>
  );
}

/** A secret that is shown only once. */
export function Secret({ title, text, onClose }: { title: string; text: string | null; onClose: () => void }) {
  return (
    <Dialog open={text !== null} title={title} onClose={onClose}>
      <p>It is shown only once. Copy it now, and keep it like a password.</p>
      <pre class="secret">{text}</pre>
      <button type="button" onClick={() => act("Copied", () => navigator.clipboard.writeText(text ?? ""))}>
        Copy
      </button>
    </Dialog>
  );
}
