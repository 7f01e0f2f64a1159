// Data that is fetched again and again: the last answer, whether one is being fetched, and the last error.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "../api/http";
import { stale } from "./stale";

export type Polled<T> = { data: T | null; error: Problem | null; loading: boolean; refresh: () => void };

export function usePoll<T>(fetcher: () => Promise<T>, deps: unknown[], everyMs = 5_000): Polled<T> {
  const [state, setState] = useState<{ data: T | null; error: Problem | null; loading: boolean }>({
    data: null,
    error: null,
    loading: true,
  });
  const [turn, setTurn] = useState(0);
  const latest = useRef(fetcher);
  latest.current = fetcher;

  useEffect(() => {
    let live = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    setState((old) => ({ ...old, loading: true }));
    const tick = async () => {
      try {
        const data = await latest.current();
        if (!live) return;
        stale.succeed();
        setState({ data, error: null, loading: false });
      } catch (cause) {
        if (!live) return;
        const error = cause instanceof Problem ? cause : new Problem(0, "error", String(cause));
        if (error.status === 0 || error.status >= 500) stale.fail();
        setState((old) => ({ data: old.data, error, loading: false }));
      }
      if (live && everyMs > 0) timer = setTimeout(tick, everyMs);
    };
    void tick();
    return () => {
      live = false;
      clearTimeout(timer);
    };
  }, [...deps, turn]);

  const refresh = useCallback(() => setTurn((old) => old + 1), []);
  return { ...state, refresh };
}
