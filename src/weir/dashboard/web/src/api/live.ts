// Server-sent events over fetch, because EventSource cannot carry a token.

import { Problem, request } from "./http";
import { stale } from "../state/stale";

const RETRY_MS = 2_000;
const SILENCE_MS = 15_000; // the server sends something at least every two seconds
const GIVES_UP = new Set([400, 401, 403, 404]); // asking again would not change the answer

/** Call `onEvent` for each message of the stream, reconnecting until the returned function is called. */
export function listen<T>(path: string, onEvent: (event: string, data: T) => void): () => void {
  const stop = new AbortController();
  void (async () => {
    while (!stop.signal.aborted) {
      try {
        await readStream(path, stop.signal, onEvent);
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof Problem && GIVES_UP.has(error.status)) return;
        stale.fail();
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  })();
  return () => stop.abort();
}

async function readStream<T>(path: string, signal: AbortSignal, onEvent: (event: string, data: T) => void) {
  const attempt = new AbortController();
  const options = { signal: AbortSignal.any([signal, attempt.signal]), headers: { Accept: "text/event-stream" } };
  try {
    const response = await inTime(request(path, options));
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      const { done, value } = await inTime(reader.read());
      if (done) return;
      buffer += value;
      const blocks = buffer.split("\n\n");
      buffer = blocks.pop() ?? "";
      for (const block of blocks) deliver(block, onEvent);
      stale.succeed();
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
