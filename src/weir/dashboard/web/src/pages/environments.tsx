import type { Me } from "../api/types";
import { href } from "../state/route";
import { environmentPath } from "../state/session";
import { Page } from "../ui/bits";
import { Table } from "../ui/table";

export function Environments({ me }: { me: Me }) {
  return (
    <Page title="Environments">
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
          ]}
        />
      </section>
    </Page>
  );
}
