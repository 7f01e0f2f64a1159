// Server-sent events over fetch, because EventSource cannot carry a token.

import { Problem, type Api } from "./http";

const RETRY_MS = 2_000;
const LONGEST_RETRY_MS = 15_000;
const SILENCE_MS = 15_000; // the server sends something at least every two seconds

export type Listener<T> = {
  onEvent: (event: string, data: T) => void;
  /** Why nothing is heard now; null once something is heard again. */
  onProblem: (problem: Problem | null) => void;
};

/** Tell of each message of the stream, reconnecting until the returned function is called. */
export function listen<T>(api: Api, path: string, { onEvent, onProblem }: Listener<T>): () => void {
  const stop = new AbortController();
  void (async () => {
    let pause = RETRY_MS;
    while (!stop.signal.aborted) {
      try {
        await readStream<T>(api, path, stop.signal, (event, data) => {
          pause = RETRY_MS;
          onProblem(null);
          onEvent(event, data);
        });
      } catch (error) {
        if (stop.signal.aborted) return;
        onProblem(error instanceof Problem ? error : new Problem(0, "broken", "The stream broke."));
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, LONGEST_RETRY_MS);
    }
  })();
  return () => stop.abort();
}

async function readStream<T>(api: Api, path: string, signal: AbortSignal, onEvent: (event: string, data: T) => void) {
  const attempt = new AbortController();
  const options = { signal: AbortSignal.any([signal, attempt.signal]), headers: { Accept: "text/event-stream" } };
  try {
    const response = await inTime(api.request(path, options));
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    let heard = false;
    for (;;) {
      const { done, value } = await inTime(reader.read());
      if (done && !heard) throw new Problem(0, "ended", "The stream ended without a word.");
      if (done) return;
      buffer += value;
      const blocks = buffer.split("\n\n");
      buffer = blocks.pop() ?? "";
      for (const block of blocks) deliver(block, onEvent);
      heard ||= blocks.length > 0;
    }
  } finally {
    attempt.abort(); // so that the next attempt does not use a dead connection again
  }
}

/** Fail if the server sends nothing for `SILENCE_MS`, as with a cut cable or a frozen server. */
async function inTime<T>(next: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, fail) => {
    timer = setTimeout(() => fail(new Problem(0, "silent", "The stream fell silent.")), SILENCE_MS);
  });
  try {
    return await Promise.race([next, silence]);
  } finally {
    clearTimeout(timer);
  }
}

function deliver<T>(block: string, onEvent: (event: string, data: T) => void) {
  let event = "message";
  const data: string[] = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length) onEvent(event, JSON.parse(data.join("\n")) as T);
}
