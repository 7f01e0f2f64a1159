// A secret that was made and is shown once. It is kept above the pages: leaving a page must not lose it.

import { signal } from "@preact/signals";

export const secret = signal<string | null>(null);
