// The environments that the token reaches, and a form that makes one.

import { useContext, useState } from "preact/hooks";
import { Api } from "../api/http";
import type { Me } from "../api/types";
import { count } from "../lib/format";
import { mayAdminister } from "../lib/rights";
import { go, href } from "../state/route";
import { environmentPath } from "../state/session";
import { act, say } from "../state/act";
import { RenewMe, useApi } from "../state/api";
import { Dialog, Form, Page } from "../ui/bits";
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
  const { token } = useApi();
  const renewMe = useContext(RenewMe);
  const known = me.environments[0];
  const [draft, setDraft] = useState({ organization: me.organization ?? known?.organization ?? "", project: known?.project ?? "", environment: "" });
  const set = (name: keyof typeof draft) => (event: { currentTarget: { value: string } }) => setDraft({ ...draft, [name]: event.currentTarget.value });
  const submit = async () => {
    const isKnown = me.environments.some((one) => one.organization === draft.organization && one.project === draft.project && one.environment === draft.environment);
    if (isKnown) return say(`${draft.environment} exists already`, false);
    const path = `/api/v1/environments/${encodeURIComponent(draft.environment)}`;
    if (!(await act(`${draft.environment}: made`, () => new Api(token, draft).send("PUT", path, {})))) return;
    renewMe();
    go(environmentPath(draft));
  };
  return (
    <Form onSend={submit}>
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
    </Form>
  );
}
