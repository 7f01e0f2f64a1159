// The form in which an alert rule is written or changed.

import { useState } from "preact/hooks";
import type { AlertChannel, AlertMetric, AlertRule } from "../api/types";
import { fromUnit, toUnit, typedUnit } from "../lib/metrics";
import { act } from "../state/act";
import { useApi } from "../state/api";
import { Form } from "../ui/bits";
import { QueueNames } from "../ui/queue-names";

type Draft = { name: string; metric: string; operator: string; threshold: string; clear: string; queue: string; minutes: string; cooldown: string; channels: string[] };
const COMPARISONS = { ">": "over", ">=": "at least", "<": "under", "<=": "at most" };
const EMPTY: Draft = { name: "", metric: "backlog", operator: ">", threshold: "1000", clear: "", queue: "", minutes: "5", cooldown: "15", channels: [] };

type UnitOf = (metric: string) => string | undefined;

function draftOf(rule: AlertRule, unitOf: UnitOf): Draft {
  const typed = (value: number) => fromUnit(value, unitOf(rule.metric));
  return {
    ...rule,
    threshold: typed(rule.threshold),
    clear: rule.clear_threshold === null ? "" : typed(rule.clear_threshold),
    queue: rule.queue ?? "",
    minutes: `${rule.window_ms / 60_000}`,
    cooldown: `${rule.cooldown_ms / 60_000}`,
  };
}

function saidBy(draft: Draft, unitOf: UnitOf) {
  const value = (text: string) => toUnit(text, unitOf(draft.metric));
  return {
    name: draft.name,
    metric: draft.metric,
    operator: draft.operator,
    threshold: value(draft.threshold),
    clear_threshold: draft.clear === "" ? null : value(draft.clear),
    queue: draft.queue || null,
    window_ms: Math.round(Number(draft.minutes) * 60_000),
    cooldown_ms: Math.round(Number(draft.cooldown) * 60_000),
    channels: draft.channels,
  };
}

/** The rule as it came, with what the form says differently now: saving replaces the whole rule. */
function changed(rule: AlertRule, draft: Draft, unitOf: UnitOf): object {
  const { id, condition, origin, created_at_ms, updated_at_ms, revision, ...came } = rule;
  const old = saidBy(draftOf(rule, unitOf), unitOf);
  const differs = ([name, value]: [string, unknown]) => JSON.stringify(value) !== JSON.stringify(old[name as keyof typeof old]);
  return { ...came, ...Object.fromEntries(Object.entries(saidBy(draft, unitOf)).filter(differs)) };
}

type Props = { rule: AlertRule | "new"; metrics: AlertMetric[]; channels: AlertChannel[]; onClose: () => void; onSaved: () => void };

export function RuleForm({ rule, metrics, channels, onClose, onSaved }: Props) {
  const { send } = useApi();
  const unitOf = (metric: string) => metrics.find((one) => one.name === metric)?.unit;
  const [draft, setDraft] = useState<Draft>(() => (rule === "new" ? EMPTY : draftOf(rule, unitOf)));
  const set = (name: keyof Draft) => (event: { currentTarget: { value: string } }) => setDraft({ ...draft, [name]: event.currentTarget.value });
  const submit = async () => {
    const save = () => (rule === "new" ? send("POST", "/api/v1/alert-rules", saidBy(draft, unitOf)) : send("PUT", `/api/v1/alert-rules/${rule.id}`, changed(rule, draft, unitOf), rule.revision));
    const saved = await act(`${draft.name} saved`, save);
    if (!saved) return;
    onSaved();
    onClose();
  };
  const toggle = (name: string) =>
    setDraft({ ...draft, channels: draft.channels.includes(name) ? draft.channels.filter((one) => one !== name) : [...draft.channels, name] });
  return (
      <Form onSend={submit}>
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
          Ends at
          <span class="row">
            <input type="number" min="0" step="any" value={draft.clear} onInput={set("clear")} placeholder="the same value" />
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
          <input type="number" min="0" step="any" required value={draft.minutes} onInput={set("minutes")} />
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
      </Form>
  );
}
