// How fairly a queue serves its keys: which waited most, which took most lease time, and how alike they waited over time.

import type { KeyFairness, KeyUse } from "../api/types";
import { count, duration, percent } from "../lib/format";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { Failed } from "../ui/bits";
import { Chart } from "../ui/chart";
import { Table, type Column } from "../ui/table";

export function Fairness({ path }: { path: string }) {
  const { get } = useApi();
  const found = usePoll(() => get<KeyFairness>(`${path}/fairness`), [path], 30_000);
  if (found.error) return <Failed error={found.error} />;
  if (!found.data || found.data.keys < 2) return null;
  const { data } = found;
  return (
    <section class="panel" aria-label="Fairness by key">
      <h2>Fairness by key, last hour</h2>
      <Index data={data} />
      <div class="charts">
        <Keys caption="Keys that waited most" rows={data.waited_most} />
        <Keys caption="Keys that took most" rows={data.took_most} />
      </div>
    </section>
  );
}

function Index({ data }: { data: KeyFairness }) {
  const known = new Map(data.points.map((point) => [Math.round((point.time_ms - data.from_ms) / data.step_ms), point.fairness]));
  const slots = Array.from({ length: Math.ceil((data.to_ms - data.from_ms) / data.step_ms) }, (_, slot) => slot);
  const times = slots.map((slot) => data.from_ms + slot * data.step_ms);
  const lines = [{ label: "index", tone: 1, values: slots.map((slot) => known.get(slot) ?? null) }];
  return (
    <>
      <Chart title="How alike keys waited" times={times} kinds={times.map(() => "measured" as const)} lines={lines} format={percent} height={120} />
      <p class="legend">Jain's index of the mean waits of the keys whose messages ended: 100 % if all keys waited alike, and lower the more the waiting falls on a few keys.</p>
    </>
  );
}

function Keys({ caption, rows }: { caption: string; rows: KeyUse[] }) {
  const columns: Column<KeyUse>[] = [
    { key: "key", label: "Key", cell: (row) => <code>{row.key}</code> },
    { key: "messages", label: "Messages", numeric: true, cell: (row) => count(row.messages) },
    { key: "wait", label: "Mean wait", numeric: true, cell: (row) => duration(row.mean_wait_ms) },
    { key: "share", label: "Share of lease time", numeric: true, cell: (row) => percent(row.leased_share) },
  ];
  return (
    <div>
      <h3>{caption}</h3>
      <Table caption={caption} rows={rows} columns={columns} rowKey={(row) => row.key} sort="" empty={<p>None.</p>} />
    </div>
  );
}
