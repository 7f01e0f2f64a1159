// The dialog in which an alert rule is written or changed.

import { useEffect, useState } from "preact/hooks";
import { send } from "../api/http";
import type { AlertChannel, AlertMetric, AlertRule } from "../api/types";
import { fromUnit, toUnit, typedUnit } from "../lib/metrics";
import { act, Dialog } from "../ui/bits";
import { QueueNames } from "../ui/queue-names";

type Draft = { name: string; metric: string; operator: string; threshold: string; queue: string; minutes: string; cooldown: string; channels: string[] };
const COMPARISONS = { ">": "over", ">=": "at least", "<": "under", "<=": "at most" };
const EMPTY: Draft = { name: "", metric: "backlog", operator: ">", threshold: "1000", queue: "", minutes: "5", cooldown: "15", channels: [] };

function draftOf(rule: AlertRule | "new" | null, unitOf: (metric: string) => string | undefined): Draft {
  if (rule === null || rule === "new") return EMPTY;
  return {
    ...rule,
    threshold: fromUnit(rule.threshold, unitOf(rule.metric)),
    queue: rule.queue ?? "",
    minutes: `${rule.window_ms / 60_000}`,
    cooldown: `${rule.cooldown_ms / 60_000}`,
  };
}

type Props = { rule: AlertRule | "new" | null; metrics: AlertMetric[]; channels: AlertChannel[]; onClose: () => void; onSaved: () => void };

export function RuleDialog({ rule, metrics, channels, onClose, onSaved }: Props) {
  const [draft, setDraft] = useState<Draft>(EMPTY);
  const unitOf = (metric: string) => metrics.find((one) => one.name === metric)?.unit;
  useEffect(() => setDraft(draftOf(rule, unitOf)), [rule, metrics.length]);
  const set = (name: keyof Draft) => (event: { currentTarget: { value: string } }) => setDraft({ ...draft, [name]: event.currentTarget.value });
  const submit = async (event: Event) => {
    event.preventDefault();
    const body = {
      name: draft.name,
      metric: draft.metric,
      operator: draft.operator,
      threshold: toUnit(draft.threshold, unitOf(draft.metric)),
      queue: draft.queue || null,
      window_ms: Math.round(Number(draft.minutes) * 60_000),
      cooldown_ms: Math.round(Number(draft.cooldown) * 60_000),
      channels: draft.channels,
    };
    const known = rule !== null && rule !== "new";
    const saved = await act(`${draft.name} saved`, () => send(known ? "PUT" : "POST", known ? `/api/v1/alert-rules/${rule.id}` : "/api/v1/alert-rules", body));
    if (!saved) return;
    onSaved();
    onClose();
  };
  const toggle = (name: string) =>
    setDraft({ ...draft, channels: draft.channels.includes(name) ? draft.channels.filter((one) => one !== name) : [...draft.channels, name] });
  return (
    <Dialog open={rule !== null} title={rule === "new" ? "New rule" : "Change rule"} onClose={onClose}>
      <form class="form" onSubmit={submit}>
        <label>
          Name
          <input required value={draft.name} onInput={set("name")} />
        </label>
        <label>
          Fire when
          <span class="row">
            <select aria-label="Metric" value={draft.metric} onChange={set("metric")}>
              {metrics.map(({ name, words, description }) => (
                <option key={name} value={name} title={description}>
                  {words}
                </option>
              ))}
            </select>
            <select aria-label="Comparison" value={draft.operator} onChange={set("operator")}>
              {Object.entries(COMPARISONS).map(([operator, words]) => (
                <option key={operator} value={operator}>
                  {words}
                </option>
              ))}
            </select>
            <input aria-label="Threshold" type="number" min="0" step="any" required value={draft.threshold} onInput={set("threshold")} />
            <small>{typedUnit(unitOf(draft.metric)).label}</small>
          </span>
        </label>
        <label>
          Queue
          <input value={draft.queue} onInput={set("queue")} list="queue-names" placeholder="every queue, each on its own" />
        </label>
        <QueueNames />
        <label>
          Minutes for which this must be true
          <input type="number" min="0.1" step="any" required value={draft.minutes} onInput={set("minutes")} />
        </label>
        <label>
          Least minutes between two alerts
          <input type="number" min="0" step="any" required value={draft.cooldown} onInput={set("cooldown")} />
        </label>
        {channels.length > 0 && (
          <fieldset>
            <legend>Send alerts to</legend>
            {channels.map(({ name }) => (
              <label key={name} class="row">
                <input type="checkbox" checked={draft.channels.includes(name)} onChange={() => toggle(name)} /> {name}
              </label>
            ))}
          </fieldset>
        )}
        <button type="submit" class="primary">
          Save
        </button>
      </form>
    </Dialog>
  );
}
