// Search from everywhere: pages, queues, keys and message ids; `/` or Ctrl-K opens it.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Found } from "../api/types";
import { useApi } from "../state/api";
import { href } from "../state/route";
import { environmentPath, type Environment } from "../state/session";

const PAUSE_MS = 150;

type Hit = { href: string; what: string; text: string };

/** Whether keys are being typed into something; then `/` is a letter. */
function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
}

export function Search({ here, pages }: { here: Environment; pages: [path: string, label: string][] }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [open, setOpen] = useState(false);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const asked = (event.key === "/" && !isTyping(event.target)) || (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey));
      if (!asked || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      setOpen(true);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  // In the same step as its content: otherwise a key press in between would find an empty dialog that is still open.
  useLayoutEffect(() => {
    if (open && !dialog.current!.open) dialog.current!.showModal();
    if (!open && dialog.current!.open) dialog.current!.close();
  }, [open]);
  return (
    <>
      <button type="button" class="search-button" onClick={() => setOpen(true)} aria-keyshortcuts="/ Control+K">
        Search <kbd aria-hidden="true">/</kbd>
      </button>
      <dialog ref={dialog} class="search-dialog" aria-label="Search" onClose={() => setOpen(dialog.current!.open)}>
        {open && <Results here={here} pages={pages} close={() => setOpen(false)} />}
      </dialog>
    </>
  );
}

function Results({ here, pages, close }: { here: Environment; pages: [string, string][]; close: () => void }) {
  const { get } = useApi();
  const [text, setText] = useState("");
  const [found, setFound] = useState<Found | null>(null);
  const [chosen, setChosen] = useState(0);
  const wanted = text.trim();
  useEffect(() => {
    setFound(null);
    if (!wanted) return;
    let live = true;
    const timer = setTimeout(async () => {
      try {
        const answer = await get<Found>("/api/v1/search", { q: wanted });
        if (live) setFound(answer);
      } catch {
        if (live) setFound({ queues: [], messages: [], complete: false });
      }
    }, PAUSE_MS);
    return () => {
      live = false;
      clearTimeout(timer);
    };
  }, [wanted]);
  const hits = hitsOf(here, pages, wanted, found);
  const at = Math.min(chosen, hits.length - 1);
  const follow = (hit: Hit) => {
    location.hash = hit.href;
    close();
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (hits.length) setChosen((at + (event.key === "ArrowDown" ? 1 : hits.length - 1)) % hits.length);
    } else if (event.key === "Enter" && hits[at]) {
      event.preventDefault();
      follow(hits[at]);
    }
  };
  return (
    <>
      <input
        type="text"
        autofocus
        role="combobox"
        aria-label="Search"
        aria-expanded={hits.length > 0}
        aria-controls="search-hits"
        aria-activedescendant={hits[at] ? `search-hit-${at}` : undefined}
        placeholder="A queue, a key, a message id or a page"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={press}
      />
      <ul id="search-hits" role="listbox" aria-label="Found">
        {hits.map((hit, i) => (
          <li key={hit.href} id={`search-hit-${i}`} role="option" aria-selected={i === at} onClick={() => follow(hit)}>
            <small>{hit.what}</small> <span>{hit.text}</span>
          </li>
        ))}
      </ul>
      <p class="legend" role="status">
        {status(wanted, hits, found)}
      </p>
    </>
  );
}

function status(wanted: string, hits: Hit[], found: Found | null): string {
  if (!wanted) return "Type a part of a name, a whole key, or a message id.";
  if (!found) return "Searching…";
  const rest = found.complete ? "" : " There was not enough time to look into every queue for this key: search in the queue itself.";
  return (hits.length ? "" : "Nothing found.") + rest;
}

function hitsOf(here: Environment, pages: [string, string][], wanted: string, found: Found | null): Hit[] {
  const link = (...parts: string[]) => href(environmentPath(here, ...parts));
  const small = wanted.toLowerCase();
  const hits: Hit[] = (found?.queues ?? []).map((name) => ({ href: link("queue", name), what: "queue", text: name }));
  for (const one of found?.messages ?? [])
    hits.push({ href: link("message", one.message_id), what: `message, ${one.state}`, text: [one.message_id, one.key && `key ${one.key}`, one.queue].filter(Boolean).join(" · ") });
  for (const [path, label] of pages)
    if (!wanted || label.toLowerCase().includes(small)) hits.push({ href: link(...(path ? [path] : [])), what: "page", text: label });
  return hits;
}
