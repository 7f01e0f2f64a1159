// Since when which sources have not been answered, so that their numbers on the screen are old.

import { computed, signal } from "@preact/signals";

const failing = signal<ReadonlyMap<object, number>>(new Map());

export const stale = {
  /** Since when the numbers of some source are old; null if all are new. */
  since: computed<number | null>(() => (failing.value.size ? Math.min(...failing.value.values()) : null)),
  fail(source: object): void {
    if (!failing.value.has(source)) failing.value = new Map(failing.value).set(source, Date.now());
  },
  /** The source was answered, or nobody shows its numbers any more. */
  succeed(source: object): void {
    if (!failing.value.has(source)) return;
    const rest = new Map(failing.value);
    rest.delete(source);
    failing.value = rest;
  },
};
