// What a reader does: said when it has ended, and held so that it is not done twice.

import { signal } from "@preact/signals";
import { useRef, useState } from "preact/hooks";

export const toast = signal<{ text: string; isGood: boolean } | null>(null);
const SHOWN_MS = 6_000;
/** How long a button rests: a second click is for what it said before. */
export const LINGERS_MS = 1_000;
let fading: ReturnType<typeof setTimeout> | undefined;

/** Nobody waits for the outcome any more, because the form that asked is closed or means something else. */
export class Abandoned extends Error {}

export function say(text: string, isGood = true): void {
  toast.value = { text, isGood };
  clearTimeout(fading);
  fading = setTimeout(() => (toast.value = null), SHOWN_MS);
}

/** Run an action of the reader and say how it ended. */
export async function act(what: string, action: () => Promise<unknown>): Promise<boolean> {
  try {
    await action();
    say(what);
    return true;
  } catch (error) {
    if (!(error instanceof Abandoned)) say(error instanceof Error ? error.message : String(error), false);
    return false;
  }
}

/** A key under which the server does something once. Not `crypto.randomUUID`, which only pages over HTTPS have. */
export function onceKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

type Held = { isHeld: boolean; hold: (action: () => unknown, lingersMs?: number) => Promise<void> };

/** Run one action at a time, and none until a while after it. */
export function useHeld(): Held {
  const held = useRef(false);
  const [isHeld, setHeld] = useState(false);
  const set = (value: boolean) => setHeld((held.current = value));
  const hold = async (action: () => unknown, lingersMs = 0) => {
    if (held.current) return;
    set(true);
    try {
      await action();
      if (lingersMs) await new Promise((resolve) => setTimeout(resolve, lingersMs));
    } finally {
      set(false);
    }
  };
  return { isHeld, hold };
}
