// Dead letters: groups of similar errors, the letters of a group, redrives and purges.

import { useState } from "preact/hooks";
import type { Group, Letter, Me } from "../api/types";
import { count } from "../lib/format";
import { mayAdminister, mayWrite } from "../lib/rights";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { route, setQuery } from "../state/route";
import { Badge, Dialog, Failed, Loading, Page, When } from "../ui/bits";
import { Deaths } from "../ui/deaths";
import { Table, type Column } from "../ui/table";
import { LetterDialog } from "./letter";
import { TaskForm, Tasks } from "./tasks";

/** As many groups as the API lists at once. */
const MOST = 500;

export type Chosen = { queue: string; fingerprint: string };

export function DeadLetters({ me }: { me: Me }) {
  const { get } = useApi();
  const { query } = route.value;
  const chosen: Chosen = { queue: query.get("queue") ?? "", fingerprint: query.get("fingerprint") ?? "" };
  const [asking, setAsking] = useState<"redrive" | "purge" | null>(null);
  const groups = usePoll(() => get<{ items: Group[] }>("/api/v1/dlq/groups", { queue: chosen.queue, limit: MOST }), [chosen.queue], 5_000);
  const picked = groups.data?.items.find((group) => group.fingerprint === chosen.fingerprint);
  return (
    <Page
      title="Dead letters"
      actions={
        mayWrite(me) && (
          <>
            <button type="button" onClick={() => setAsking("redrive")}>
              Redrive…
            </button>
            {mayAdminister(me) && (
              <button type="button" class="danger" onClick={() => setAsking("purge")}>
                Purge…
              </button>
            )}
          </>
        )
      }
    >
      <Failed error={groups.error} />
      {chosen.queue && (
        <p class="row">
          Only the queue <Badge tone="calm">{chosen.queue}</Badge>
          <button type="button" onClick={() => setQuery({ queue: undefined, fingerprint: undefined })}>
            Show all queues
          </button>
        </p>
      )}
      <Deaths queue={chosen.queue} />
      {groups.data ? <Groups groups={groups.data.items} chosen={chosen} /> : !groups.error && <Loading />}
      {groups.data && chosen.fingerprint && !picked && <p role="note">The chosen group has no letters any more, or it is not among the largest {MOST}.</p>}
      {picked && <LettersByQueue key={picked.fingerprint} group={picked} only={chosen.queue} me={me} />}
      <Tasks me={me} />
      <Dialog open={asking !== null} title={asking === "redrive" ? "Send dead letters back" : "Delete dead letters"} onClose={() => setAsking(null)}>
        {asking && <TaskForm kind={asking} chosen={chosen} groups={groups.data?.items ?? []} onClose={() => setAsking(null)} />}
      </Dialog>
    </Page>
  );
}

function Groups({ groups, chosen }: { groups: Group[]; chosen: Chosen }) {
  const columns: Column<Group>[] = [
    {
      key: "template",
      label: "Error",
      sort: (row) => row.template,
      cell: (row) => (
        <button
          type="button"
          class="plain"
          aria-pressed={row.fingerprint === chosen.fingerprint}
          onClick={() => setQuery({ fingerprint: row.fingerprint === chosen.fingerprint ? undefined : row.fingerprint }, { replace: false })}
        >
          <code class="words">{row.template || "(no error text)"}</code>
        </button>
      ),
    },
    { key: "dead", label: "Dead", numeric: true, sort: (row) => row.dead_count, cell: (row) => count(row.dead_count) },
    { key: "total", label: "Ever", numeric: true, sort: (row) => row.total_count, cell: (row) => count(row.total_count) },
    { key: "rate", label: "Per hour", numeric: true, sort: (row) => row.rate_per_h, cell: (row) => row.rate_per_h.toFixed(1) },
    { key: "queues", label: "Queues", cell: (row) => row.queues.join(", ") },
    { key: "first", label: "First seen", sort: (row) => row.first_seen_ms, cell: (row) => <When at={row.first_seen_ms} /> },
    { key: "last", label: "Last seen", sort: (row) => row.last_seen_ms, cell: (row) => <When at={row.last_seen_ms} /> },
  ];
  return (
    <section class="panel" aria-label="Groups">
      <h2>Groups of similar errors</h2>
      {groups.length === MOST && <p role="note">These are the {MOST} largest groups; there may be more.</p>}
      <Table
        caption="Groups of dead letters"
        rows={groups}
        columns={columns}
        rowKey={(row) => row.fingerprint}
        sort={route.value.query.get("sort") ?? "-dead"}
        onSort={(sort) => setQuery({ sort })}
        empty={<p>Nothing has died. A message comes here when it used up its attempts, expired, or was rejected.</p>}
      />
    </section>
  );
}

/** A group may have letters in several queues; those of one are shown. */
function LettersByQueue({ group, only, me }: { group: Group; only: string; me: Me }) {
  const [picked, setPicked] = useState("");
  const queue = only || (group.queues.includes(picked) ? picked : (group.queues[0] ?? ""));
  return (
    <>
      {!only && group.queues.length > 1 && (
        <label class="row">
          Queue of the letters
          <select value={queue} onChange={(event) => setPicked(event.currentTarget.value)}>
            {group.queues.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      )}
      <Letters key={queue} group={group} queue={queue} me={me} />
    </>
  );
}

function Letters({ group, queue, me }: { group: Group; queue: string; me: Me }) {
  const { get } = useApi();
  const [open, setOpen] = useState<Letter | null>(null);
  const [before, setBefore] = useState<string | undefined>(undefined);
  const page = usePoll(
    () => get<{ items: Letter[]; next_before: string | null }>("/api/v1/dlq/letters", { queue, fingerprint: group.fingerprint, before }, ["items.payload"]),
    [queue, group.fingerprint, before],
    10_000,
  );
  const columns: Column<Letter>[] = [
    {
      key: "id",
      label: "Message",
      cell: (row) => (
        <button type="button" class="plain" onClick={() => setOpen(row)}>
          <code>{row.id}</code>
        </button>
      ),
    },
    { key: "died", label: "Died", cell: (row) => <When at={row.died_at_ms} /> },
    { key: "reason", label: "Why", cell: (row) => <Badge tone="warn">{row.reason}</Badge> },
    { key: "attempts", label: "Attempts", numeric: true, cell: (row) => `${row.attempts} / ${row.max_attempts}` },
    { key: "error", label: "Error", cell: (row) => row.error.slice(0, 160) },
    { key: "redriven", label: "Redriven", cell: (row) => (row.redriven_at_ms ? <When at={row.redriven_at_ms} /> : "no") },
  ];
  return (
    <section class="panel" aria-label="Letters">
      <h2>Letters of this group in {queue}</h2>
      <Failed error={page.error} />
      {page.data && <Table caption="Dead letters" rows={page.data.items} columns={columns} rowKey={(row) => row.id} sort="" empty={<p>None left.</p>} />}
      <p class="row">
        {before && (
          <button type="button" onClick={() => setBefore(undefined)}>
            Newest
          </button>
        )}
        {page.data?.next_before && (
          <button type="button" onClick={() => setBefore(page.data!.next_before!)}>
            Older
          </button>
        )}
      </p>
      <LetterDialog letter={open} me={me} onClose={() => setOpen(null)} onChanged={page.refresh} />
    </section>
  );
}
