// Whether what is on the screen can still be trusted.

import { signal } from "@preact/signals";

const since = signal<number | null>(null);

export const stale = {
  since,
  fail(): void {
    since.value ??= Date.now();
  },
  succeed(): void {
    since.value = null;
  },
};
