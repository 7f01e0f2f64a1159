// The steps of a message's timeline, oldest first.

import type { Step } from "../api/types";
import { When } from "./bits";

export function Steps({ steps }: { steps: Step[] }) {
  return (
    <ol class="timeline">
      {steps.map((step) => (
        <li key={`${step.at_ms}${step.what}`}>
          <When at={step.at_ms} /> <b>{step.what}</b> {detailsOf(step)}
        </li>
      ))}
    </ol>
  );
}

function detailsOf(step: Step): string {
  return Object.entries(step.details)
    .filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}
