// Cancel all messages of a queue that a search finds: a dry run first, then a bulk action of the servers.

import { useState } from "preact/hooks";
import type { MessageState } from "../api/types";
import { exact } from "../lib/format";
import { act } from "../state/act";
import { useCounted } from "../state/counted";
import { Button, Dialog } from "../ui/bits";
import { looked } from "./tasks";

type Props = { path: string; state: MessageState; match: { key?: string; text?: string }; onDone: () => void };

export function CancelMatching(props: Props) {
  const [open, setOpen] = useState(false);
  const close = () => {
    setOpen(false);
    props.onDone();
  };
  return (
    <>
      <button type="button" class="danger" onClick={() => setOpen(true)}>
        Cancel all that match…
      </button>
      <Dialog open={open} title="Cancel all that match" onClose={close}>
        <CancelForm {...props} onDone={close} />
      </Dialog>
    </>
  );
}

function CancelForm({ path, state, match, onDone }: Props) {
  const [rate, setRate] = useState("");
  const { counted, task, count, finish } = useCounted(`${path}/cancellations`, { filter: { state, ...match } });
  const cancelThem = async () => (await act("Cancelled", () => finish(rate ? { rate_per_s: Number(rate) } : {}))) && onDone();
  return (
    <>
      <p>
        {match.key && (
          <>
            Key <code>{match.key}</code>.{" "}
          </>
        )}
        {match.text && (
          <>
            Text <code>{match.text}</code>.{" "}
          </>
        )}
        State {state}. They are removed for good. If you close this dialog, the servers go on; the page of dead letters shows the progress.
      </p>
      <label>
        Messages per second
        <input type="number" min="1" value={rate} onInput={(event) => setRate(event.currentTarget.value)} placeholder="as fast as possible" />
      </label>
      {task && <p role="status">{counted ? `${exact(counted.matched)} messages match.` : `${looked(task)}.`}</p>}
      <p class="row">
        <Button onPress={() => act("Counted", count)}>Dry run</Button>
        <Button class="danger" disabled={!counted?.matched} onPress={cancelThem}>
          {counted ? `Cancel ${exact(counted.matched)}` : "Dry run first"}
        </Button>
      </p>
    </>
  );
}
