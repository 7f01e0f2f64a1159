// One dead letter: its payload and timeline, and the buttons to redrive or delete it.

import type { Letter, Me, Step } from "../api/types";
import { amount, moment } from "../lib/format";
import { pretty } from "../lib/json";
import { mayAdminister, mayWrite } from "../lib/rights";
import { act } from "../state/act";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { Button, Dialog, Sure } from "../ui/bits";
import { Steps } from "../ui/steps";

export function LetterDialog({ letter, me, onClose, onChanged }: { letter: Letter | null; me: Me; onClose: () => void; onChanged: () => void }) {
  const { send } = useApi();
  const path = letter ? `/api/v1/dlq/letters/${letter.id}` : "";
  const queue = letter ? `queue=${encodeURIComponent(letter.queue)}` : "";
  const isEarly = letter !== null && letter.attempts < letter.max_attempts;
  const done = async (what: string, method: string, target: string) => {
    const isDone = await act(what, () => send(method, target));
    if (isDone) {
      onChanged();
      onClose();
    }
    return isDone;
  };
  return (
    <Dialog open={letter !== null} title={letter ? `Message ${letter.id}` : ""} onClose={onClose}>
      {letter && (
        <>
          <p>
            Died {moment(letter.died_at_ms)} in <b>{letter.queue}</b>, reason <b>{letter.reason}</b>, after {letter.attempts} of {amount(letter.max_attempts, "attempt")}.
          </p>
          <h3>Error</h3>
          <pre>{letter.error || "(none)"}</pre>
          <h3>Payload ({letter.payload_bytes} bytes)</h3>
          <pre>{letter.payload_base64 ?? pretty(letter.payload ?? "null")}</pre>
          {Object.keys(letter.headers).length > 0 && (
            <>
              <h3>Headers</h3>
              <pre>{JSON.stringify(letter.headers, null, 2)}</pre>
            </>
          )}
          <Timeline letter={letter} />
          {mayWrite(me) && (
            <p class="row">
              <Button class="primary" disabled={letter.redriven_at_ms !== null} onPress={() => done("Sent back to its queue", "POST", `${path}/redrive?${queue}`)}>
                Redrive
              </Button>
              {mayAdminister(me) && (
                <Sure label="Delete…" class="danger" title={`Delete the dead letter ${letter.id}?`} verb={isEarly ? "Delete it all the same" : "Delete it"} onSure={() => done("Deleted", "DELETE", `${path}?${queue}${isEarly ? "&force=true" : ""}`)}>
                  <p>
                    It is deleted from <b>{letter.queue}</b> for good. {isEarly && `It has used up ${letter.attempts} of ${amount(letter.max_attempts, "attempt")} only, so it may still succeed if it is sent back.`}
                  </p>
                </Sure>
              )}
            </p>
          )}
        </>
      )}
    </Dialog>
  );
}

function Timeline({ letter }: { letter: Letter }) {
  const { get } = useApi();
  const story = usePoll(() => get<{ items: Step[] }>(`/api/v1/messages/${letter.id}/timeline`), [letter.id], 0);
  return (
    <>
      <h3>Timeline</h3>
      <Steps steps={story.data?.items ?? known(letter)} />
    </>
  );
}

/** The steps that the dead letter itself contains, shown until the timeline is fetched, or if that fails. */
function known(letter: Letter): Step[] {
  const steps: Step[] = [
    { at_ms: letter.enqueued_at_ms, what: "enqueued", details: {} },
    { at_ms: letter.died_at_ms, what: "died", details: { reason: letter.reason } },
  ];
  if (letter.redriven_at_ms) steps.push({ at_ms: letter.redriven_at_ms, what: "redriven", details: { result: letter.redrive_result } });
  return steps;
}
