// The dialog in which an alert rule is written or changed.

import { useEffect, useState } from "preact/hooks";
import { send } from "../api/http";
import type { AlertChannel, AlertRule } from "../api/types";
import { METRICS } from "../lib/metrics";
import { act, Dialog } from "../ui/bits";

type Draft = { name: string; metric: string; operator: string; threshold: string; queue: string; minutes: string; cooldown: string; channels: string[] };
const EMPTY: Draft = { name: "", metric: "backlog", operator: ">", threshold: "1000", queue: "", minutes: "5", cooldown: "15", channels: [] };

function draftOf(rule: AlertRule | "new" | null): Draft {
  if (rule === null || rule === "new") return EMPTY;
  return {
    ...rule,
    threshold: `${rule.threshold / sizeOf(rule.metric)}`,
    queue: rule.queue ?? "",
    minutes: `${rule.window_ms / 60_000}`,
    cooldown: `${rule.cooldown_ms / 60_000}`,
  };
}

function sizeOf(metric: string): number {
  return METRICS[metric]?.size ?? 1;
}

/** The threshold in the API's unit; whole milliseconds, because 1000 times a fraction may not be whole. */
function toUnits(draft: Draft): number {
  const size = sizeOf(draft.metric);
  const value = Number(draft.threshold) * size;
  return size === 1 ? value : Math.round(value);
}

export function RuleDialog({ rule, channels, onClose, onSaved }: { rule: AlertRule | "new" | null; channels: AlertChannel[]; onClose: () => void; onSaved: () => void }) {
  const [draft, setDraft] = useState<Draft>(EMPTY);
  useEffect(() => setDraft(draftOf(rule)), [rule]);
  const set = (name: keyof Draft) => (event: { currentTarget: { value: string } }) => setDraft({ ...draft, [name]: event.currentTarget.value });
  const submit = async (event: Event) => {
    event.preventDefault();
    const body = {
      name: draft.name,
      metric: draft.metric,
      operator: draft.operator,
      threshold: toUnits(draft),
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
              {Object.keys(METRICS).map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
            <select aria-label="Comparison" value={draft.operator} onChange={set("operator")}>
              {[">", ">=", "<", "<="].map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
            <input aria-label="Threshold" type="number" min="0" step="any" required value={draft.threshold} onInput={set("threshold")} />
            <small>{METRICS[draft.metric]?.label}</small>
          </span>
        </label>
        <label>
          Queue
          <input value={draft.queue} onInput={set("queue")} placeholder="every queue, each on its own" />
        </label>
        <label>
          Minutes that it must hold
          <input type="number" min="0.1" step="any" required value={draft.minutes} onInput={set("minutes")} />
        </label>
        <label>
          Minutes of quiet after it fired
          <input type="number" min="0" step="any" required value={draft.cooldown} onInput={set("cooldown")} />
        </label>
        {channels.length > 0 && (
          <fieldset>
            <legend>Tell</legend>
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
