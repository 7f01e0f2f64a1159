// Since when the server has not answered, so that the numbers on the screen are old.

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
