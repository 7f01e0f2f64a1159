// Dead letters: groups of similar errors, the letters of a group, redrives and purges.

import { useState } from "preact/hooks";
import { get } from "../api/http";
import type { Group, Letter, Me } from "../api/types";
import { count } from "../lib/format";
import { mayAdminister, mayWrite } from "../lib/rights";
import { usePoll } from "../state/poll";
import { route, setQuery } from "../state/route";
import { Badge, Failed, Loading, Page, When } from "../ui/bits";
import { Deaths } from "../ui/deaths";
import { Table, type Column } from "../ui/table";
import { LetterDialog } from "./letter";
import { TaskDialog, Tasks } from "./tasks";

export type Chosen = { queue: string; fingerprint: string };

export function DeadLetters({ me }: { me: Me }) {
  const { query } = route.value;
  const chosen: Chosen = { queue: query.get("queue") ?? "", fingerprint: query.get("fingerprint") ?? "" };
  const [asking, setAsking] = useState<"redrive" | "purge" | null>(null);
  const groups = usePoll(() => get<{ items: Group[] }>("/api/v1/dlq/groups", { queue: chosen.queue }), [chosen.queue], 5_000);
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
      {picked && <Letters group={picked} queue={chosen.queue || (picked.queues[0] ?? "")} me={me} />}
      <Tasks me={me} />
      <TaskDialog kind={asking} chosen={chosen} groups={groups.data?.items ?? []} onClose={() => setAsking(null)} />
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

function Letters({ group, queue, me }: { group: Group; queue: string; me: Me }) {
  const [open, setOpen] = useState<Letter | null>(null);
  const [before, setBefore] = useState<string | undefined>(undefined);
  const page = usePoll(
    () => get<{ items: Letter[]; next_before: string | null }>("/api/v1/dlq/letters", { queue, fingerprint: group.fingerprint, before }),
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
