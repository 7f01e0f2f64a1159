// Tokens, the limit of the environment, and the audit log of who changed what.

import { useContext, useEffect, useState } from "preact/hooks";
import type { AuditEntry, Me, Role, Token } from "../api/types";
import { moment } from "../lib/format";
import { mayAdminister } from "../lib/rights";
import { act } from "../state/act";
import { secret } from "../state/secret";
import { RenewMe, useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { Badge, Dialog, Failed, Loading, Form, Page, Sure, When } from "../ui/bits";
import { Table, type Column } from "../ui/table";

const DAY_MS = 86_400_000;

export function Access({ me }: { me: Me }) {
  return (
    <Page title="Access">
      {mayAdminister(me) ? (
        <>
          <Tokens me={me} />
          <Limit me={me} />
          <Audit />
        </>
      ) : (
        <section class="panel" aria-label="Access">
          <p class="empty">
            Your token may {me.role === "read" ? "read" : "read and write"}. Tokens, limits and the audit log are shown to admins: ask one, or use a token from{" "}
            <code>weir token create NAME --role admin</code>.
          </p>
        </section>
      )}
    </Page>
  );
}

function stateOf(token: Token): preact.JSX.Element {
  if (token.revoked_at_ms) return <Badge tone="calm">ended</Badge>;
  if (token.expires_at_ms && token.expires_at_ms < Date.now()) return <Badge tone="calm">expired</Badge>;
  return <Badge tone="good">valid</Badge>;
}

function holds(token: Token): boolean {
  return !token.revoked_at_ms && !(token.expires_at_ms && token.expires_at_ms < Date.now());
}

function Tokens({ me }: { me: Me }) {
  const { get, send } = useApi();
  const found = usePoll(() => get<{ items: Token[] }>("/api/v1/tokens"), [], 10_000);
  const [making, setMaking] = useState(false);
  const [all, setAll] = useState(false);
  const rotate = (token: Token) =>
    act(`${token.name}: rotated`, async () => {
      secret.value = (await send<{ token: string }>("POST", `/api/v1/tokens/${token.id}/rotate`, { grace_ms: 3_600_000 })).token;
      found.refresh();
    });
  const end = (token: Token) =>
    act(`${token.name}: ended`, async () => {
      await send("DELETE", `/api/v1/tokens/${token.id}`);
      found.refresh();
    });
  const columns: Column<Token>[] = [
    { key: "name", label: "Token", cell: (row) => row.name },
    { key: "role", label: "Role", cell: (row) => row.role },
    { key: "scope", label: "Reaches", cell: (row) => [row.organization, row.project, row.environment].filter(Boolean).join(" / ") || "everything" },
    { key: "used", label: "Last used", cell: (row) => <When at={row.last_used_at_ms} /> },
    { key: "expires", label: "Expires", cell: (row) => (row.expires_at_ms ? moment(row.expires_at_ms) : "never") },
    { key: "state", label: "State", cell: stateOf },
    {
      key: "actions",
      label: "",
      cell: (row) =>
        holds(row) && (
          <span class="row">
            <Sure label="Rotate…" title={`Rotate the token ${row.name}?`} verb="Rotate it" onSure={() => rotate(row)}>
              <p>Whoever uses it needs the new one within an hour; then the old one is refused.</p>
            </Sure>
            <Sure label="End…" class="danger" title={`End the token ${row.name}?`} verb="End it" onSure={() => end(row)}>
              <p>
                Requests with it are refused within seconds. It was last used <When at={row.last_used_at_ms} />.
              </p>
            </Sure>
          </span>
        ),
    },
  ];
  const shown = (found.data?.items ?? []).filter((token) => all || holds(token));
  const ended = (found.data?.items.length ?? 0) - shown.length;
  return (
    <section class="panel" aria-label="Tokens">
      <div class="page-head">
        <h2>Tokens</h2>
        <div class="actions">
          {(ended > 0 || all) && (
            <label>
              <input type="checkbox" checked={all} onChange={() => setAll(!all)} /> ended ones too
            </label>
          )}
          <button type="button" onClick={() => setMaking(true)}>
            New token…
          </button>
        </div>
      </div>
      <Failed error={found.error} />
      {!found.data && !found.error && <Loading />}
      {found.data && <Table caption="Tokens of the API" rows={shown} columns={columns} rowKey={(row) => row.id} sort="" empty={<p>No token yet. Each service needs its own token: make it here, with the lowest role that is enough.</p>} />}
      <NewToken
        me={me}
        open={making}
        onClose={() => setMaking(false)}
        onMade={(text) => {
          setMaking(false);
          secret.value = text;
          found.refresh();
        }}
      />
    </section>
  );
}

const ROLES: Record<Exclude<Role, "operator">, string> = { read: "look at everything", write: "push, pop, pause, redrive", admin: "change specs, tokens and channels" };

function NewToken({ me, open, onClose, onMade }: { me: Me; open: boolean; onClose: () => void; onMade: (text: string) => void }) {
  const { send } = useApi();
  const [draft, setDraft] = useState({ name: "", role: "write", days: "", everywhere: false });
  const here = useApi().scope!;
  const submit = async () => {
    const scope = draft.everywhere ? { organization: here.organization } : here;
    const body = { name: draft.name, role: draft.role, ...scope, ...(draft.days ? { lifetime_ms: Math.round(Number(draft.days) * DAY_MS) } : {}) };
    await act(`${draft.name}: made`, async () => onMade((await send<{ token: string }>("POST", "/api/v1/tokens", body)).token));
  };
  const set = (name: keyof typeof draft) => (event: { currentTarget: { value: string } }) => setDraft({ ...draft, [name]: event.currentTarget.value });
  return (
    <Dialog open={open} title="New token" onClose={onClose}>
      <Form onSend={submit}>
        <label>
          Name
          <input required value={draft.name} onInput={set("name")} placeholder="checkout service" />
        </label>
        <label>
          It may
          <select value={draft.role} onChange={set("role")}>
            {Object.entries(ROLES).map(([role, words]) => (
              <option key={role} value={role}>
                {role}: {words}
              </option>
            ))}
          </select>
        </label>
        <label>
          Days until it expires
          <input type="number" min="0.01" step="any" value={draft.days} onInput={set("days")} placeholder="it never expires" />
        </label>
        {me.organization !== null && (
          <label class="row">
            <input type="checkbox" checked={draft.everywhere} onChange={() => setDraft({ ...draft, everywhere: !draft.everywhere })} /> every environment of {here.organization}, not only {here.environment}
          </label>
        )}
        <button type="submit" class="primary">
          Make it
        </button>
      </Form>
    </Dialog>
  );
}

function Limit({ me }: { me: Me }) {
  const renewMe = useContext(RenewMe);
  const { send } = useApi();
  const here = useApi().scope!;
  const known = me.environments.find((one) => JSON.stringify([one.organization, one.project, one.environment]) === JSON.stringify([here.organization, here.project, here.environment]));
  const limit = known?.concurrency ? `${known.concurrency}` : "";
  const [text, setText] = useState(limit);
  useEffect(() => setText(limit), [limit]);
  const submit = async () => {
    if (await act(text ? `At most ${text} at once` : "No limit", () => send("PUT", `/api/v1/environments/${encodeURIComponent(here.environment)}`, { concurrency: text ? Number(text) : null }))) renewMe();
  };
  return (
    <section class="panel" aria-label="Environment">
      <h2>Limit of {here.environment}</h2>
      <Form class="row" onSend={submit}>
        <label class="row">
          Messages that may be leased at once, over all queues
          <input type="number" min="1" step="1" value={text} placeholder="no limit" onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <button type="submit">Set</button>
      </Form>
    </section>
  );
}

/** The name of the token that made a change, or its id if the reader cannot see the token. */
function Actor({ actor, tokens }: { actor: string; tokens: Token[] }) {
  const known = tokens.find((token) => actor === `token:${token.id}`);
  return known ? <span title={actor}>{known.name}</span> : <code>{actor}</code>;
}

function Audit() {
  const { get } = useApi();
  const here = useApi().scope!;
  const [before, setBefore] = useState<string | undefined>(undefined);
  const [search, setSearch] = useState("");
  const found = usePoll(() => get<{ items: AuditEntry[] }>("/api/v1/audit-log", { ...here, before, limit: 100 }), [before, JSON.stringify(here)], before ? 0 : 10_000);
  const tokens = usePoll(() => get<{ items: Token[] }>("/api/v1/tokens"), [], 60_000);
  const columns: Column<AuditEntry>[] = [
    { key: "at", label: "When", cell: (row) => <When at={row.at_ms} /> },
    { key: "action", label: "What", cell: (row) => <code>{row.action}</code> },
    { key: "target", label: "To what", cell: (row) => row.target },
    { key: "actor", label: "By", cell: (row) => <Actor actor={row.actor} tokens={tokens.data?.items ?? []} /> },
    { key: "details", label: "Details", cell: (row) => (Object.keys(row.details).length ? <code>{JSON.stringify(row.details)}</code> : "") },
  ];
  const small = search.toLowerCase();
  const rows = (found.data?.items ?? []).filter((row) => !small || `${row.action} ${row.target} ${row.actor}`.toLowerCase().includes(small));
  return (
    <section class="panel" aria-label="Audit log">
      <div class="page-head">
        <h2>Who changed what</h2>
        <label>
          <span class="visually-hidden">Filter the audit log</span>
          <input type="search" placeholder="Filter" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        </label>
      </div>
      <Failed error={found.error} />
      {found.data && <Table caption="Requested changes" rows={rows} columns={columns} rowKey={(row) => row.id} sort="" empty={<p>{search ? "Nothing matches on this page." : "Nothing was changed here yet. Every requested change is recorded here."}</p>} />}
      <p class="row">
        {before && (
          <button type="button" onClick={() => setBefore(undefined)}>
            Newest
          </button>
        )}
        {found.data?.items.length === 100 && (
          <button type="button" onClick={() => setBefore(found.data!.items.at(-1)!.id)}>
            Older
          </button>
        )}
      </p>
    </section>
  );
}
