// The life of a message that ended, as one bar of its waits and leases, with its attempts above.

import type { Life, LifeAttempt } from "../api/types";
import { duration } from "../lib/format";
import { WaitBar } from "./wait-bar";

export function LifeBar({ life }: { life: Life }) {
  const leased = { reason: "leased", waited_ms: life.leased_ms, text: `leased ${duration(life.leased_ms)}` };
  return (
    <>
      {life.last_attempts.length > 0 && <AttemptStrip life={life} />}
      <WaitBar parts={life.leased_ms > 0 ? [...life.parts, leased] : life.parts} what="Life" />
    </>
  );
}

/** Attempts at their times between the enqueue and the end. The parts of the bar below are sums, so they have no times. */
function AttemptStrip({ life }: { life: Life }) {
  const whole = Math.max(life.ended_at_ms - life.enqueued_at_ms, 1);
  const share = (ms: number) => `${(100 * ms) / whole}%`;
  return (
    <ol class="attempt-strip" aria-label="Attempts of its life">
      {life.last_attempts.map((one) => (
        <li
          key={one.attempt}
          class={`attempt attempt-${one.end}`}
          style={{ left: share(one.started_at_ms - life.enqueued_at_ms), width: share(one.ended_at_ms - one.started_at_ms) }}
          title={said(one)}
        >
          <span class="visually-hidden">{said(one)}</span>
        </li>
      ))}
    </ol>
  );
}

function said(one: LifeAttempt): string {
  return `Attempt ${one.attempt}: ${one.end} after ${duration(one.ended_at_ms - one.started_at_ms)}, by ${one.consumer}`;
}
