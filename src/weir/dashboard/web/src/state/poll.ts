// Data that is fetched again and again: the last answer, whether one is being fetched, and the last error.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "../api/http";
import { stale } from "./stale";

export type Polled<T> = { data: T | null; error: Problem | null; loading: boolean; refresh: () => void };

/** What is known of one question. */
type Known<T> = { question: string; data: T | null; error: Problem | null; loading: boolean };

const RETRY_MS = 3_000;

/** Ask a question, which `deps` tell from others, until the page is left; with `everyMs` 0, until it is answered. An answer is shown for its own question only. */
export function usePoll<T>(fetcher: () => Promise<T>, deps: unknown[], everyMs = 5_000): Polled<T> {
  const question = JSON.stringify(deps);
  const nothing: Known<T> = { question, data: null, error: null, loading: true };
  const [known, setKnown] = useState(nothing);
  const [turn, setTurn] = useState(0);
  const latest = useRef(fetcher);
  latest.current = fetcher;
  const source = useRef({}).current;

  useEffect(() => {
    let live = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    setKnown((old) => (old.question === question ? { ...old, loading: true } : nothing));
    const tick = async () => {
      let pause = everyMs;
      try {
        const data = await latest.current();
        if (!live) return;
        stale.succeed(source);
        setKnown({ question, data, error: null, loading: false });
      } catch (cause) {
        if (!live) return;
        const error = cause instanceof Problem ? cause : new Problem(0, "error", String(cause));
        if (error.isRefusal) stale.succeed(source);
        else {
          stale.fail(source);
          pause ||= RETRY_MS;
        }
        // A refusal is an answer, too: what was there is not there any more, or not for this reader.
        setKnown((old) => ({ question, data: error.isRefusal || old.question !== question ? null : old.data, error, loading: false }));
      }
      if (live && pause > 0) timer = setTimeout(tick, pause);
    };
    void tick();
    return () => {
      live = false;
      clearTimeout(timer);
    };
  }, [question, turn]);
  useEffect(() => () => stale.succeed(source), [question]);

  const refresh = useCallback(() => setTurn((old) => old + 1), []);
  const { data, error, loading } = known.question === question ? known : nothing;
  return { data, error, loading, refresh };
}
