// Server-sent events over fetch, because EventSource cannot carry a token.

import { Problem, request } from "./http";
import { stale } from "../state/stale";

const RETRY_MS = 2_000;

/** Call `onEvent` for each message of the stream, reconnecting until the returned function is called. */
export function listen<T>(path: string, onEvent: (event: string, data: T) => void): () => void {
  const stop = new AbortController();
  void (async () => {
    while (!stop.signal.aborted) {
      try {
        await readStream(path, stop.signal, onEvent);
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof Problem && error.status >= 400 && error.status < 500) return;
        stale.fail();
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  })();
  return () => stop.abort();
}

async function readStream<T>(path: string, signal: AbortSignal, onEvent: (event: string, data: T) => void) {
  const response = await request(path, { signal, headers: { Accept: "text/event-stream" } });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    buffer += value;
    const blocks = buffer.split("\n\n");
    buffer = blocks.pop() ?? "";
    for (const block of blocks) deliver(block, onEvent);
    stale.succeed();
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
