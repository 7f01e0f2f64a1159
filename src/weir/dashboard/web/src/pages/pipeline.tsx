// The pipeline: its lag and rates, the events that are known to be missing, and its audits.

import { useEffect, useState } from "preact/hooks";
import type { Me, PipelineState } from "../api/types";
import { amount, count, duration, moment, rate } from "../lib/format";
import { useMarks } from "../state/marks";
import { useApi } from "../state/api";
import { usePoll } from "../state/poll";
import { Badge, Failed, Loading, Page, Stat, When } from "../ui/bits";
import { Chart } from "../ui/chart";
import { Table, type Column } from "../ui/table";
import { Audits } from "./audits";

type Sample = { at: number; events: number; lag: number };
const KEPT = 300;
const SINCE_OPENED = { period: "30m" };

export function Pipeline({ me }: { me: Me }) {
  const { get } = useApi();
  const polled = usePoll(() => get<PipelineState>("/api/v1/pipeline"), [], 2_000);
  const samples = useSamples(polled.data);
  useMarks(SINCE_OPENED);
  const found = polled.data;
  return (
    <Page title="Pipeline">
      <Failed error={polled.error} />
      {!found && !polled.error && <Loading />}
      {found && (
        <>
          <Verdict found={found} />
          <Switch found={found} />
          <Numbers found={found} />
          <Recent samples={samples} />
          <Streams found={found} />
          <Gaps found={found} />
        </>
      )}
      <Audits me={me} />
    </Page>
  );
}

/** The samples that this page has taken since it was opened. */
function useSamples(found: PipelineState | null): Sample[] {
  const [samples, setSamples] = useState<Sample[]>([]);
  useEffect(() => {
    if (!found?.status) return;
    setSamples((old) => [...old.slice(1 - KEPT), { at: Date.now(), events: found.status!.events, lag: found.lag_s * 1000 }]);
  }, [found]);
  return samples;
}

function Verdict({ found }: { found: PipelineState }) {
  const gaps = found.gaps?.length ?? 0;
  const [tone, text] = !found.running
    ? ["bad", found.status ? `The pipeline does not run: ${found.status.state} ${found.status.error}` : "The pipeline has never run. Charts show nothing until it does."]
    : found.status?.error
      ? ["bad", `Nothing lands: ${found.status.error}`]
    : found.lag_s > 30
      ? ["warn", `The charts are ${duration(found.lag_s * 1000)} behind.`]
      : gaps
        ? ["warn", `Running; ${amount(gaps, "gap")} ${gaps === 1 ? "is" : "are"} known and shown as unknown.`]
        : ["good", "Running, nothing missing."];
  return (
    <section class={`panel verdict ${tone}`} role="status">
      <span>{text}</span>
    </section>
  );
}

/** Says that metrics are off: since when, in which shards, who did it and why. */
function Switch({ found }: { found: PipelineState }) {
  const first = found.off.reduce<PipelineState["off"][number] | null>((old, one) => (old && old.since_ms <= one.since_ms ? old : one), null);
  if (!first) return null;
  const shards = found.off.map((one) => one.shard).join(", ");
  return (
    <section class="panel verdict warn" aria-label="Metrics are off" role="status">
      <span>
        Metrics were switched off <When at={first.since_ms} /> (shards {shards}) by <code>{first.by}</code>{first.reason && `: ${first.reason}`}. Charts show nothing since then, and alert rules cannot be evaluated. <code>weir pipeline metrics on</code> switches them on.
      </span>
    </section>
  );
}

function Numbers({ found }: { found: PipelineState }) {
  const status = found.status;
  return (
    <section class="panel" aria-label="Progress">
      <dl class="stats">
        <Stat label="Lag" value={duration(found.lag_s * 1000)} note={amount(found.lag_events, "event")} />
        <Stat label="Last batch" value={count(status?.batch_events)} note={status ? `in ${duration(status.batch_s * 1000)}` : undefined} />
        <Stat label="Events since start" value={count(status?.events)} />
        <Stat label="Rejected events" value={count(status?.rejected)} />
        <Stat label="Failures" value={count(status?.failures)} />
        <Stat label="Deaths" value={count(status?.deaths)} note={status?.died_ms ? <When at={status.died_ms} /> : undefined} />
        <Stat label="Newest event on the charts" value={status?.newest_ms ? <When at={status.newest_ms} /> : "–"} />
      </dl>
    </section>
  );
}

function Recent({ samples }: { samples: Sample[] }) {
  if (samples.length < 2) return null;
  const shared = { times: samples.map((sample) => sample.at), kinds: samples.map(() => "measured" as const) };
  const rates = samples.map((sample, i) => {
    const before = samples[i - 1];
    return before && sample.events >= before.events ? ((sample.events - before.events) * 1000) / (sample.at - before.at) : null;
  });
  return (
    <div class="charts">
      <Chart title="Events per second since this page was opened" lines={[{ label: "events", tone: 1, values: rates }]} format={rate} {...shared} />
      <Chart title="Lag" lines={[{ label: "lag", tone: 3, values: samples.map((sample) => sample.lag) }]} format={duration} {...shared} />
    </div>
  );
}

function Streams({ found }: { found: PipelineState }) {
  type Row = PipelineState["streams"][number];
  const columns: Column<Row>[] = [
    { key: "metric", label: "Metric", cell: (row) => row.metric },
    { key: "shard", label: "Shard", numeric: true, cell: (row) => row.shard },
    { key: "position", label: "Landed up to", cell: (row) => <LandedUpTo position={row.position} /> },
    { key: "events", label: "Waiting", numeric: true, cell: (row) => count(row.events) },
    { key: "seconds", label: "For", numeric: true, cell: (row) => duration(row.seconds * 1000) },
  ];
  return (
    <section class="panel" aria-label="Streams">
      <h2>Streams</h2>
      <Table caption="Lag by stream" rows={found.streams} columns={columns} rowKey={(row) => `${row.metric} ${row.shard}`} sort="" empty={<p>No event has been emitted yet.</p>} />
    </section>
  );
}

/** The loss per counter, such as `12 enqueued, 3 acked`; a dash before an audit knows it. */
function spellLost(lost: Record<string, number>): string {
  const some = Object.entries(lost).filter(([, lostCount]) => lostCount > 0);
  return some.map(([name, lostCount]) => `${count(lostCount)} ${name}`).join(", ") || "–";
}

/** The text if there is no gap. It depends on whether the pipeline ever ran, and on its lag. */
function NoGaps({ found }: { found: PipelineState }) {
  if (!found.status)
    return (
      <p>
        None is known, because the pipeline has never run: nothing is on the charts yet. <code>weir up</code> and <code>weir pipeline run</code> start it.
      </p>
    );
  if (!found.running || found.lag_events > 0)
    return (
      <p>
        None so far: every event that was read is on the charts, and {amount(found.lag_events, "event")} {found.lag_events === 1 ? "waits" : "wait"} to be read.
      </p>
    );
  return (
    <p>
      None: every event that was emitted is on the charts. Prove it with <code>weir pipeline audit</code>.
    </p>
  );
}

function Gaps({ found }: { found: PipelineState }) {
  type Row = NonNullable<PipelineState["gaps"]>[number];
  const columns: Column<Row>[] = [
    { key: "metric", label: "Metric", cell: (row) => `${row.metric}, shard ${row.shard}` },
    { key: "from", label: "From", cell: (row) => moment(row.from_ms) },
    { key: "to", label: "To", cell: (row) => (row.open ? "still open" : moment(row.to_ms)) },
    { key: "reason", label: "Why", cell: (row) => <Badge tone="warn">{row.reason}</Badge> },
    { key: "lost", label: "Lost", cell: (row) => (row.entries != null ? amount(row.entries, "event") : spellLost(row.lost)) },
  ];
  return (
    <section class="panel" aria-label="Gaps">
      <h2>Gaps</h2>
      {found.gaps === null ? <p class="failed">ClickHouse does not answer, so gaps cannot be shown.</p> : <Table caption="Known gaps" rows={found.gaps} columns={columns} rowKey={(row) => `${row.metric}${row.shard}${row.from_id}`} sort="" empty={<NoGaps found={found} />} />}
    </section>
  );
}

/** An id of a stream begins with its time in milliseconds. */
function LandedUpTo({ position }: { position: string }) {
  const at = Number.parseInt(position, 10);
  return at > 0 ? <span title={position}>{moment(at)}</span> : <code>{position}</code>;
}
