// Schedules: what is pushed when, how the last ticks ended, and the buttons to change, pause, resume and run them.

import { useState } from "preact/hooks";
import type { ListedSchedule, Me, Schedule, ScheduleDetail, ScheduleRun } from "../api/types";
import { count, duration, moment, until } from "../lib/format";
import { pretty } from "../lib/json";
import { mayAdminister, mayWrite } from "../lib/rights";
import { act } from "../state/act";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { go, href, route } from "../state/route";
import { environment, environmentPath } from "../state/session";
import { Badge, Button, Failed, Loading, Page, Sure, When, type Tone } from "../ui/bits";
import { Table, type Column } from "../ui/table";
import { ScheduleDialog } from "./schedule-form";

export function Schedules({ me }: { me: Me }) {
  const name = route.value.path[5];
  return name === undefined ? <List me={me} /> : <Detail key={name} me={me} name={name} />;
}

function here(...parts: string[]): string {
  return href(environmentPath(environment.value!, ...parts));
}

function pathOf(name: string, verb = ""): string {
  return `/api/v1/schedules/${encodeURIComponent(name)}${verb && `/${verb}`}`;
}

function timing(schedule: Schedule): string {
  return schedule.cron === null ? `every ${duration(schedule.every_ms)}` : `${schedule.cron} ${schedule.timezone}`;
}

/** A moment to come; its exact time appears on hover. */
function Next({ at }: { at: number | null }) {
  if (at === null) return <span>–</span>;
  return (
    <time dateTime={new Date(at).toISOString()} title={moment(at)}>
      {until(at)}
    </time>
  );
}

function outcome(run: ScheduleRun): { text: string; tone: Tone } {
  if (run.outcome === "failed") return { text: "failed", tone: "bad" };
  if (run.outcome === "skipped") return { text: run.ticks > 1 ? `skipped ${count(run.ticks)} ticks` : "skipped", tone: "warn" };
  if (run.ended === "acked") return { text: "done", tone: "good" };
  if (run.ended === null) return { text: "pushed", tone: "calm" };
  if (run.ended === "cancelled") return { text: "cancelled", tone: "warn" };
  return { text: run.ended === "dead" ? "died" : "failed", tone: "bad" };
}

function Outcome({ run }: { run: ScheduleRun | null }) {
  if (!run) return <span>–</span>;
  const { text, tone } = outcome(run);
  return (
    <span title={run.reason ?? undefined}>
      <Badge tone={tone}>{text}</Badge>
    </span>
  );
}

function Verbs({ schedule, me, refresh }: { schedule: Schedule; me: Me; refresh: () => void }) {
  const { send } = useApi();
  if (!mayWrite(me)) return null;
  const ask = async (verb: string, said: string) => {
    await act(`${schedule.name}: ${said}`, () => send("POST", pathOf(schedule.name, verb)));
    refresh();
  };
  return (
    <span class="row">
      <Button onPress={() => ask("run", "a run was requested")}>Run now</Button>
      <Button onPress={() => (schedule.paused ? ask("resume", "resumed") : ask("pause", "paused"))}>{schedule.paused ? "Resume" : "Pause"}</Button>
    </span>
  );
}

/** Change and remove, for a schedule that neither a spec nor an app owns. */
function Edit({ schedule, refresh }: { schedule: Schedule; refresh: () => void }) {
  const { send } = useApi();
  const [changing, setChanging] = useState(false);
  const remove = async () => {
    const isDone = await act(`${schedule.name}: removed`, () => send("DELETE", pathOf(schedule.name)));
    // Only a reader who still looks at it is led away.
    if (isDone && location.hash === here("schedules", schedule.name)) go(environmentPath(environment.value!, "schedules"));
    return isDone;
  };
  return (
    <span class="row">
      <button type="button" onClick={() => setChanging(true)}>
        Change…
      </button>
      <ScheduleDialog schedule={changing ? schedule : null} onClose={() => setChanging(false)} onSaved={refresh} />
      <Sure label="Remove…" class="danger" title={`Remove the schedule ${schedule.name}?`} verb="Remove it" onSure={remove}>
        <p>It pushes nothing any more, and its runs are deleted. Messages that it pushed stay.</p>
      </Sure>
    </span>
  );
}

function List({ me }: { me: Me }) {
  const { get } = useApi();
  const found = usePoll(() => get<{ items: ListedSchedule[] }>("/api/v1/schedules", {}, ["items.payload"]), [], 5_000);
  const [making, setMaking] = useState(false);
  const columns: Column<ListedSchedule>[] = [
    { key: "name", label: "Schedule", cell: (row) => <a href={here("schedules", row.name)}>{row.name}</a> },
    { key: "when", label: "When", cell: (row) => <code>{timing(row)}</code> },
    { key: "queue", label: "Queue", cell: (row) => <a href={here("queue", row.queue)}>{row.queue}</a> },
    { key: "next", label: "Next", cell: (row) => (row.paused ? <Badge tone="warn">paused</Badge> : <Next at={row.next_tick_ms} />) },
    { key: "last", label: "Last", cell: (row) => <When at={row.last_run?.tick_ms} /> },
    { key: "outcome", label: "Outcome", cell: (row) => <Outcome run={row.last_run} /> },
    { key: "problem", label: "", cell: (row) => row.problem && <Badge tone="bad">{row.problem}</Badge> },
    { key: "actions", label: "", cell: (row) => <Verbs schedule={row} me={me} refresh={found.refresh} /> },
  ];
  return (
    <Page
      title="Schedules"
      actions={
        mayAdminister(me) && (
          <button type="button" onClick={() => setMaking(true)}>
            New schedule…
          </button>
        )
      }
    >
      <Failed error={found.error} />
      {!found.data && !found.error && <Loading />}
      {found.data && (
        <section class="panel" aria-label="Schedules">
          <Table
            caption="Schedules"
            rows={found.data.items}
            columns={columns}
            rowKey={(row) => row.name}
            sort=""
            empty={
              <>
                <p>No schedule yet. Make one here, write it into the spec, or create it by command:</p>
                <pre>weir schedule create nightly --queue reports --cron "0 3 * * *"</pre>
              </>
            }
          />
        </section>
      )}
      <ScheduleDialog schedule={making ? "new" : null} onClose={() => setMaking(false)} onSaved={found.refresh} />
    </Page>
  );
}

function Detail({ me, name }: { me: Me; name: string }) {
  const { get } = useApi();
  const found = usePoll(() => get<ScheduleDetail>(pathOf(name), {}, ["payload"]), [name], 2_000);
  const title = (
    <>
      <a href={here("schedules")}>Schedules</a> / {name}
    </>
  );
  return (
    <Page
      title={title}
      actions={
        found.data && (
          <>
            <Verbs schedule={found.data} me={me} refresh={found.refresh} />
            {found.data.origin === "api" && mayAdminister(me) && <Edit schedule={found.data} refresh={found.refresh} />}
          </>
        )
      }
    >
      <Failed error={found.error} />
      {!found.data && !found.error && <Loading />}
      {found.data && (
        <>
          <Said schedule={found.data} />
          <Ticks schedule={found.data} />
          <Runs runs={found.data.runs} />
        </>
      )}
    </Page>
  );
}

const MISSED: Record<Schedule["missed"], string> = {
  skip: "Ticks that were missed while nothing ran are skipped.",
  last: "Of the ticks that were missed while nothing ran, only the last one is pushed.",
  all: "All ticks that were missed while nothing ran are pushed.",
};
const OVERLAP: Record<Schedule["overlap"], string> = {
  allow: "A tick does not wait for the message of the tick before it.",
  skip: "A tick is skipped while the message of the tick before it is not done.",
};

function owner(schedule: Schedule): string {
  if (schedule.origin === "spec") return "It belongs to the spec, which changes it.";
  if (schedule.origin === "app") return `It belongs to the app ${schedule.app}, whose code changes it.`;
  return "It was made through the API.";
}

function Said({ schedule }: { schedule: ScheduleDetail }) {
  return (
    <section class="panel" aria-label="What it says">
      {schedule.problem && (
        <p class="failed" role="alert">
          A tick is due but was not pushed: {schedule.problem}
        </p>
      )}
      <p>
        <code>{timing(schedule)}</code> pushes into <a href={here("queue", schedule.queue)}>{schedule.queue}</a>. {MISSED[schedule.missed]} {OVERLAP[schedule.overlap]}{" "}
        {owner(schedule)}
        {schedule.paused && <Badge tone="warn">paused</Badge>}
      </p>
      <pre>{pretty(schedule.payload ?? "null")}</pre>
    </section>
  );
}

function Ticks({ schedule }: { schedule: ScheduleDetail }) {
  return (
    <section class="panel" aria-label="Next ticks">
      <h2>Next ten</h2>
      {!schedule.next_ticks_ms.length && <p class="empty">{schedule.paused ? "None while it is paused." : "No future date matches."}</p>}
      <ol>
        {schedule.next_ticks_ms.map((tick) => (
          <li key={tick}>
            {moment(tick)} <small>{until(tick)}</small>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Runs({ runs }: { runs: ScheduleRun[] }) {
  const columns: Column<ScheduleRun>[] = [
    { key: "tick", label: "Tick", cell: (row) => moment(row.tick_ms) },
    { key: "outcome", label: "Outcome", cell: (row) => <Outcome run={row} /> },
    { key: "asked", label: "", cell: (row) => row.asked && <small>requested</small> },
    { key: "reason", label: "Reason", cell: (row) => row.reason ?? "" },
    { key: "message", label: "Message", cell: (row) => row.message_id && <a class="id" href={here("message", row.message_id)}>{row.message_id}</a> },
  ];
  return (
    <section class="panel" aria-label="Last runs">
      <h2>Last runs</h2>
      <Table caption="Runs and how they ended" rows={runs} columns={columns} rowKey={(row) => `${row.tick_ms} ${row.outcome}`} sort="" empty={<p>It has not run yet.</p>} />
    </section>
  );
}
