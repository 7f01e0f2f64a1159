// The parts of a message's wait as one bar, with a legend in words.

import type { WaitPart } from "../api/types";

export function WaitBar({ parts, what = "Waited" }: { parts: WaitPart[]; what?: string }) {
  if (!parts.length) return <p>It did not wait.</p>;
  return (
    <>
      <div class="wait-bar" role="img" aria-label={`${what}: ${parts.map((part) => part.text).join(", ")}`}>
        {parts.map((part) => (
          <span key={part.reason} class={`part part-${part.reason}`} style={{ flexGrow: part.waited_ms }} title={part.text} />
        ))}
      </div>
      <ul class="legend" aria-label={what === "Waited" ? "Parts of its wait" : "Parts of its life"}>
        {parts.map((part) => (
          <li key={part.reason}>
            <span class={`part-swatch part-${part.reason}`} aria-hidden="true" />
            <b>{part.text}</b>
          </li>
        ))}
      </ul>
    </>
  );
}
