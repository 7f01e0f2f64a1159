// A dry run of a bulk action, and the start of exactly what it counted.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Task } from "../api/types";
import { useApi } from "./api";
import { Abandoned } from "./act";

const LOOK_MS = 250;
const GOES_ON = new Set(["pending", "running", "paused"]);

export type Counted = {
  /** The dry run of the form as it is now, or what was started from it. */
  task: Task | null;
  /** The same once it has counted everything; before, nothing may be started. */
  counted: Task | null;
  count: () => Promise<void>;
  /** Start what was counted. */
  start: (how: object) => Promise<unknown>;
  /** Start what was counted, and wait until it has ended. */
  finish: (how: object) => Promise<void>;
};

/** `selection` says what is meant. As soon as it says something else, what was counted for it before counts no more. */
export function useCounted(path: string, selection: object): Counted {
  const { get, send } = useApi();
  const meant = JSON.stringify([path, selection]);
  const [shown, setShown] = useState<{ meant: string; task: Task } | null>(null);
  const newest = useRef(0);
  // Also when the form is closed: then nobody waits for the answer any more.
  useEffect(() => () => void newest.current++, [meant]);

  /** Follow a task to its end, as long as the form means the same. */
  const follow = async (body: object): Promise<void> => {
    const mine = ++newest.current;
    for (let task = await send<Task>("POST", path, body); ; task = await get<Task>(`/api/v1/dlq/tasks/${task.id}`)) {
      if (newest.current !== mine) throw new Abandoned();
      setShown({ meant, task });
      if (task.state === "completed") return;
      if (!GOES_ON.has(task.state)) throw new Error(task.note ?? `It is not done: ${task.state.replaceAll("_", " ")}.`);
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  };
  const task = shown?.meant === meant ? shown.task : null;
  const counted = task?.dry_run && task.state === "completed" ? task : null;
  return {
    task,
    counted,
    count: () => follow({ ...selection, dry_run: true }),
    start: (how) => send("POST", path, { ...how, from_dry_run: counted!.id }),
    finish: (how) => follow({ ...how, from_dry_run: counted!.id }),
  };
}
