// Cancel all messages of a queue that a search finds: a dry run first, then page by page.

import { useRef, useState } from "preact/hooks";
import { send } from "../api/http";
import type { MessageState } from "../api/types";
import { count, exact } from "../lib/format";
import { act, Dialog } from "../ui/bits";

type Cancelled = { cancelled: number; scanned: number; next_cursor: string | null };
type Progress = { cancelled: number; scanned: number };
type Props = { path: string; state: MessageState; match: { key?: string; text?: string }; onDone: () => void };

export function CancelMatching({ path, state, match, onDone }: Props) {
  const [open, setOpen] = useState(false);
  const [progress, setProgress] = useState<Progress | null>(null);
  const [matched, setMatched] = useState<number | null>(null);
  const stopped = useRef(false);
  const close = () => {
    stopped.current = true;
    setOpen(false);
    setProgress(null);
    setMatched(null);
    onDone();
  };
  const walk = async (dryRun: boolean): Promise<number> => {
    stopped.current = false;
    let cursor: string | null = null;
    const total = { cancelled: 0, scanned: 0 };
    do {
      const body: object = { filter: { state, ...match }, dry_run: dryRun, cursor };
      const page: Cancelled = await send("POST", `${path}/cancel`, body);
      total.cancelled += page.cancelled;
      total.scanned += page.scanned;
      cursor = page.next_cursor;
      setProgress({ ...total });
    } while (cursor && !stopped.current);
    return total.cancelled;
  };
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
          State {state}. They are removed for good. Close this to stop.
        </p>
        {progress && <p role="status">{matched === null ? `${count(progress.scanned)} messages looked at.` : `${exact(matched)} messages match.`}</p>}
        <p class="row">
          <button type="button" onClick={() => act("Dry run done", async () => setMatched(await walk(true)))}>
            Dry run
          </button>
          <button type="button" class="danger" disabled={!matched} onClick={async () => (await act("Cancelled", () => walk(false))) && close()}>
            {matched === null ? "Dry run first" : `Cancel ${exact(matched)}`}
          </button>
        </p>
      </Dialog>
    </>
  );
}
