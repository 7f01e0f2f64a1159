// Cancel all messages of a queue that a search finds: a dry run first, then a bulk action of the servers.

import { useState } from "preact/hooks";
import { send } from "../api/http";
import type { MessageState, Task } from "../api/types";
import { count, exact } from "../lib/format";
import { act, Dialog } from "../ui/bits";
import { followTask } from "./tasks";

type Props = { path: string; state: MessageState; match: { key?: string; text?: string }; onDone: () => void };

export function CancelMatching({ path, state, match, onDone }: Props) {
  const [open, setOpen] = useState(false);
  const [rate, setRate] = useState("");
  const [task, setTask] = useState<Task | null>(null);
  const [matched, setMatched] = useState<number | null>(null);
  const close = () => {
    setOpen(false);
    setTask(null);
    setMatched(null);
    onDone();
  };
  const run = async (dryRun: boolean): Promise<Task> => {
    const body = { filter: { state, ...match }, dry_run: dryRun, ...(rate && !dryRun && { rate_per_s: Number(rate) }) };
    return followTask(await send<Task>("POST", `${path}/cancellations`, body), setTask);
  };
  const countThem = () => act("Counted", async () => setMatched((await run(true)).matched));
  const cancelThem = async () => (await act("Cancelled", () => run(false))) && close();
  return (
    <>
      <button type="button" class="danger" onClick={() => setOpen(true)}>
        Cancel all that match…
      </button>
      <Dialog open={open} title="Cancel all that match" onClose={close}>
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
        {task && <p role="status">{matched === null || !task.dry_run ? `${count(task.scanned)} of ${count(task.expected)} messages looked at.` : `${exact(matched)} messages match.`}</p>}
        <p class="row">
          <button type="button" onClick={() => void countThem()}>
            Dry run
          </button>
          <button type="button" class="danger" disabled={!matched} onClick={() => void cancelThem()}>
            {matched === null ? "Dry run first" : `Cancel ${exact(matched)}`}
          </button>
        </p>
      </Dialog>
    </>
  );
}
