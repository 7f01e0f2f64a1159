// The environments that the token reaches, and a form that makes one.

import { useState } from "preact/hooks";
import { request } from "../api/http";
import type { Me } from "../api/types";
import { count } from "../lib/format";
import { mayAdminister } from "../lib/rights";
import { go, href } from "../state/route";
import { environmentPath } from "../state/session";
import { act, Dialog, Page } from "../ui/bits";
import { Table } from "../ui/table";

export function Environments({ me }: { me: Me }) {
  const [making, setMaking] = useState(false);
  return (
    <Page
      title="Environments"
      actions={
        mayAdminister(me) && (
          <button type="button" onClick={() => setMaking(true)}>
            New environment…
          </button>
        )
      }
    >
      <section class="panel">
        <Table
          caption="Environments"
          rows={me.environments}
          rowKey={(row) => JSON.stringify(row)}
          sort=""
          empty={
            <>
              <p>Your token reaches no environment yet. The first push to a queue makes one:</p>
              <pre>weir queue create orders &amp;&amp; weir queue push orders '{"{"}"hello": "world"{"}"}'</pre>
            </>
          }
          columns={[
            {
              key: "environment",
              label: "Environment",
              cell: (row) => <a href={href(environmentPath(row))}>{row.environment}</a>,
            },
            { key: "project", label: "Project", cell: (row) => row.project },
            { key: "organization", label: "Organization", cell: (row) => row.organization },
            { key: "limit", label: "Leases at once", numeric: true, cell: (row) => (row.concurrency === null ? "no limit" : count(row.concurrency)) },
          ]}
        />
      </section>
      <Dialog open={making} title="New environment" onClose={() => setMaking(false)}>
        {making && <NewEnvironment me={me} />}
      </Dialog>
    </Page>
  );
}

function NewEnvironment({ me }: { me: Me }) {
  const known = me.environments[0];
  const [draft, setDraft] = useState({ organization: me.organization ?? known?.organization ?? "", project: known?.project ?? "", environment: "" });
  const set = (name: keyof typeof draft) => (event: { currentTarget: { value: string } }) => setDraft({ ...draft, [name]: event.currentTarget.value });
  const submit = async (event: Event) => {
    event.preventDefault();
    const headers = {
      "Weir-Organization": encodeURIComponent(draft.organization),
      "Weir-Project": encodeURIComponent(draft.project),
      "Weir-Environment": encodeURIComponent(draft.environment),
    };
    const path = `/api/v1/environments/${encodeURIComponent(draft.environment)}`;
    if (await act(`${draft.environment}: made`, () => request(path, { method: "PUT", body: { concurrency: null }, headers }))) go(environmentPath(draft));
  };
  return (
    <form class="form" onSubmit={submit}>
      <label>
        Organization
        <input required disabled={me.organization !== null} value={draft.organization} onInput={set("organization")} />
      </label>
      <label>
        Project
        <input required value={draft.project} onInput={set("project")} />
      </label>
      <label>
        Environment
        <input required value={draft.environment} onInput={set("environment")} placeholder="staging" />
      </label>
      <button type="submit" class="primary">
        Make it
      </button>
    </form>
  );
}
