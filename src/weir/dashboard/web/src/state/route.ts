// The hash of the address holds the state of the page, so that a link carries it.

import { computed, signal } from "@preact/signals";

export type Route = { path: string[]; query: URLSearchParams };

function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean);
  return { path: parts.map(safeDecode), query: new URLSearchParams(query) };
}

function safeDecode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const hash = signal(location.hash);
addEventListener("hashchange", () => (hash.value = location.hash));

export const route = computed(() => parse(hash.value));

export function href(path: string[], query: Record<string, string | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  const tail = search.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${tail ? `?${tail}` : ""}`;
}

export function go(path: string[], query: Record<string, string | undefined> = {}): void {
  location.hash = href(path, query);
}

/** Change some parameters of the current address; an empty value removes a parameter. */
export function setQuery(changes: Record<string, string | undefined>, { replace = true } = {}): void {
  const query = new URLSearchParams(route.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const next = href(route.value.path, Object.fromEntries(query));
  if (next === location.hash) return;
  if (replace) {
    history.replaceState(null, "", next);
    hash.value = location.hash;
  } else location.hash = next;
}
