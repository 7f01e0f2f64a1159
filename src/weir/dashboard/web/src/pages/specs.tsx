// The applied spec, its history, and the plan of another one.

import { useMemo, useState } from "preact/hooks";
import type { Me, SpecPlan, SpecRevision, SpecText, Webhook } from "../api/types";
import { diffLines } from "../lib/diff";
import { mayAdminister } from "../lib/rights";
import { act } from "../state/act";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { route, setQuery } from "../state/route";
import { Badge, Button, Failed, Page, When } from "../ui/bits";
import { Table, type Column } from "../ui/table";

export function Specs({ me }: { me: Me }) {
  const { get } = useApi();
  const history = usePoll(() => get<{ items: SpecRevision[] }>("/api/v1/spec/history"), [], 10_000);
  const revisions = history.data?.items ?? [];
  const chosen = Number(route.value.query.get("revision")) || revisions[0]?.revision;
  const shown = useText(chosen);
  const current = useText(revisions[0]?.revision);
  return (
    <Page title="Specs">
      <Failed error={history.error} />
      {history.data && <Revisions revisions={revisions} chosen={chosen} />}
      {revisions.length > 0 && <Webhooks />}
      {shown && <Source revision={shown} before={revisions.find((one) => one.revision < shown.revision)} />}
      {mayAdminister(me) && history.data && <Editor current={current} onApplied={history.refresh} />}
    </Page>
  );
}

/** A revision with its text; undefined until it is there. The text of a revision never changes. */
function useText(revision: number | undefined): SpecText | undefined {
  const { get } = useApi();
  const found = usePoll(() => (revision ? get<SpecText>(`/api/v1/spec/history/${revision}`) : Promise.resolve(null)), [revision], 600_000);
  return found.data?.revision === revision ? (found.data ?? undefined) : undefined;
}

function Revisions({ revisions, chosen }: { revisions: SpecRevision[]; chosen: number | undefined }) {
  const columns: Column<SpecRevision>[] = [
    {
      key: "revision",
      label: "Revision",
      cell: (row) => (
        <button type="button" class="plain" aria-pressed={row.revision === chosen} onClick={() => setQuery({ revision: `${row.revision}` })}>
          {row.revision === chosen ? <b>{row.revision}</b> : row.revision}
        </button>
      ),
    },
    { key: "file", label: "File", cell: (row) => row.file },
    { key: "actor", label: "By", cell: (row) => row.actor },
    { key: "at", label: "Applied", cell: (row) => <When at={row.applied_at_ms} /> },
  ];
  return (
    <section class="panel" aria-label="Revisions">
      <Table
        caption="Applied revisions"
        rows={revisions}
        columns={columns}
        rowKey={(row) => `${row.revision}`}
        sort=""
        empty={
          <>
            <p>No spec is applied to this environment. Write one and apply it:</p>
            <pre>{"weir spec check shop.weir\nweir spec apply shop.weir"}</pre>
          </>
        }
      />
    </section>
  );
}

function Webhooks() {
  const { get } = useApi();
  const found = usePoll(() => get<{ items: Webhook[] }>("/api/v1/webhooks"), [], 10_000);
  const columns: Column<Webhook>[] = [
    { key: "name", label: "Webhook", cell: (row) => row.name },
    { key: "path", label: "Address", cell: (row) => <code>{row.path}</code> },
    { key: "queue", label: "Queue", cell: (row) => row.queue ?? "none: it runs at once" },
    { key: "scheme", label: "Signature", cell: (row) => row.scheme ?? "none" },
    { key: "secret", label: "Secret", cell: (row) => <Secret webhook={row} /> },
  ];
  return (
    <section class="panel" aria-label="Webhooks">
      <h2>Webhooks</h2>
      <Failed error={found.error} />
      {found.data && <Table caption="Webhooks of the spec" rows={found.data.items} columns={columns} rowKey={(row) => row.name} sort="" empty={<p>The spec has no webhook.</p>} />}
    </section>
  );
}

function Secret({ webhook }: { webhook: Webhook }) {
  if (!webhook.scheme) return <>not needed</>;
  if (webhook.accepts) return <>set{webhook.missing_secrets.length > 0 && `, without ${webhook.missing_secrets.join(", ")}`}</>;
  return (
    <>
      <Badge tone="bad">not set</Badge> every request is refused; set {webhook.missing_secrets.join(" or ")} with <code>weir secret set</code>
    </>
  );
}

function Source({ revision, before: earlier }: { revision: SpecText; before: SpecRevision | undefined }) {
  const [differ, setDiffer] = useState(false);
  const before = useText(earlier?.revision);
  const old = differ && before ? before.source : revision.source;
  const lines = useMemo(() => diffLines(old, revision.source), [old, revision.source]);
  return (
    <section class="panel" aria-label="Source">
      <div class="page-head">
        <h2>Revision {revision.revision}</h2>
        {before && (
          <button type="button" aria-pressed={differ} onClick={() => setDiffer(!differ)}>
            {differ ? "Show whole" : `Compare with revision ${before.revision}`}
          </button>
        )}
      </div>
      <pre tabIndex={0} aria-label="Text of the spec">
        {lines.map((line, i) => (
          <span key={i} class={line.kind === "+" ? "diff-add" : line.kind === "-" ? "diff-remove" : undefined}>
            {differ ? `${line.kind} ` : ""}
            {line.text}
            {"\n"}
          </span>
        ))}
      </pre>
    </section>
  );
}

function Editor({ current, onApplied }: { current: SpecText | undefined; onApplied: () => void }) {
  const { send } = useApi();
  const [source, setSource] = useState<string | null>(null);
  const text = source ?? current?.source ?? "";
  const body = { source: text, file: current?.file ?? "spec.weir" };
  const [made, setMade] = useState<{ of: string; plan: SpecPlan } | null>(null);
  // A plan is of one text, on one revision; only that may be applied.
  const plan = made?.of === text ? made.plan : null;
  const makePlan = () => act("Planned; nothing was changed", async () => setMade({ of: text, plan: await send<SpecPlan>("POST", "/api/v1/spec/plan", body) }));
  const apply = async () => {
    if (!(await act("Applied", () => send("PUT", "/api/v1/spec", { ...body, revision: plan!.revision })))) return;
    setMade(null);
    onApplied();
  };
  return (
    <section class="panel" aria-label="Change">
      <h2>Change</h2>
      <div class="form">
        <label>
          Spec
          <textarea class="source" rows={14} spellcheck={false} value={text} onInput={(event) => setSource(event.currentTarget.value)} />
        </label>
        <div class="row">
          <Button disabled={!text} onPress={makePlan}>
            Plan
          </Button>
          <Button class="primary" disabled={!plan?.allowed || !plan.changes.length} onPress={apply}>
            Apply
          </Button>
        </div>
        {plan && <Planned plan={plan} />}
      </div>
    </section>
  );
}

function Planned({ plan }: { plan: SpecPlan }) {
  return (
    <div role="status">
      {!plan.changes.length && <p>Nothing would change.</p>}
      <ul>
        {plan.changes.map((change, i) => (
          <li key={i}>
            <Badge tone={change.effect === "remove" ? "bad" : change.effect === "add" ? "good" : "calm"}>{change.effect}</Badge> {change.kind} {change.name} {change.path.join(".")}
            {change.effect === "change" && `: ${JSON.stringify(change.before)} → ${JSON.stringify(change.after)}`}
          </li>
        ))}
        {plan.refusals.map((text) => (
          <li key={text} class="diff-remove">
            refused: {text}
          </li>
        ))}
        {plan.warnings.map((text) => (
          <li key={text}>note: {text}</li>
        ))}
      </ul>
    </div>
  );
}
