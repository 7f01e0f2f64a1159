// Marks drawn over a chart, and the same marks as a list for readers who do not hover.

import type uPlot from "uplot";
import type { Mark } from "../api/types";
import { duration, moment } from "../lib/format";
import { act } from "../state/act";
import { useApi } from "../state/api";
import { marks } from "../state/marks";
import { useState } from "preact/hooks";
import { Form } from "./bits";

const NEAR_PX = 6;
const STRIP_PX = 6;
const SHOWN = 8;
const TONES: Record<Mark["kind"], string> = { alert: "--bad", annotation: "--accent", spec: "--good", pause: "--warn", gap: "--muted" };

function isSpan(mark: Mark): boolean {
  return mark.kind === "alert" || mark.kind === "pause" || mark.kind === "gap";
}

/** Moments are dashed lines over the whole height; spans are a strip at the top with a line where they begin. */
export function drawMarks(plot: uPlot, color: (name: string) => string): void {
  const { ctx, bbox } = plot;
  const [from = 0, to = 0] = [plot.scales["x"]!.min, plot.scales["x"]!.max];
  const left = (ms: number) => plot.valToPos(Math.min(Math.max(ms / 1000, from ?? 0), to ?? 0), "x", true);
  ctx.save();
  for (const mark of marks.value) {
    const [start, end] = [mark.at_ms, isSpan(mark) ? (mark.until_ms ?? Infinity) : mark.at_ms];
    if (start > (to ?? 0) * 1000 || end < (from ?? 0) * 1000) continue;
    ctx.strokeStyle = ctx.fillStyle = color(TONES[mark.kind]);
    if (isSpan(mark)) {
      const width = Math.max(left(end) - left(start), 2);
      ctx.fillRect(left(start), bbox.top, width, STRIP_PX * devicePixelRatio);
      ctx.globalAlpha = 0.08;
      ctx.fillRect(left(start), bbox.top, width, bbox.height);
      ctx.globalAlpha = 1;
    }
    if (start < (from ?? 0) * 1000) continue;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash(isSpan(mark) ? [2, 3] : [6, 3]);
    ctx.globalAlpha = 0.45;
    ctx.beginPath();
    ctx.moveTo(left(start), bbox.top);
    ctx.lineTo(left(start), bbox.top + bbox.height);
    ctx.stroke();
    ctx.globalAlpha = 1;
  }
  ctx.restore();
}

/** The marks under the cursor: a span that it is in, or a moment close to it. */
export function marksAt(plot: uPlot): Mark[] {
  const { left } = plot.cursor;
  if (left == null || left < 0) return [];
  const at = plot.posToVal(left, "x") * 1000;
  return marks.value.filter((mark) =>
    isSpan(mark) && mark.at_ms <= at ? at <= (mark.until_ms ?? Infinity) : Math.abs(plot.valToPos(mark.at_ms / 1000, "x") - left) < NEAR_PX,
  );
}

/** A mark in words, such as `alert: Payments back up (payments), 6 min`. */
export function wordsOf(mark: Mark): string {
  const where = mark.queue && mark.kind !== "pause" ? ` (${mark.queue})` : "";
  const lasted = !isSpan(mark) ? "" : mark.until_ms === null ? ", goes on" : `, ${duration(mark.until_ms - mark.at_ms)}`;
  return `${mark.kind}: ${mark.text}${where}${lasted}`;
}

export function MarkList({ found, mayAdd, refresh }: { found: Mark[]; mayAdd: boolean; refresh: () => void }) {
  const newest = [...found].reverse().slice(0, SHOWN);
  return (
    <section class="panel" aria-label="Marks">
      <h2>What happened</h2>
      {!newest.length && (
        <p class="empty">
          Nothing is marked in this period: no alert, pause, applied spec or gap. Mark a deploy with <code>weir annotate "v42 out"</code>.
        </p>
      )}
      <ul class="marks">
        {newest.map((mark) => (
          <li key={`${mark.kind}${mark.at_ms}${mark.text}`}>
            <i class={`dot ${mark.kind}`} aria-hidden="true" /> {moment(mark.at_ms)} <b>{wordsOf(mark)}</b>
          </li>
        ))}
      </ul>
      {found.length > SHOWN && <p class="legend">And {found.length - SHOWN} more on the charts.</p>}
      {mayAdd && <Annotate refresh={refresh} />}
    </section>
  );
}

function Annotate({ refresh }: { refresh: () => void }) {
  const { send } = useApi();
  const [text, setText] = useState("");
  const submit = async () => {
    if (!(await act("Marked on every chart", () => send("POST", "/api/v1/annotations", { text })))) return;
    setText("");
    refresh();
  };
  return (
    <Form class="row" onSend={submit}>
      <label>
        <span class="visually-hidden">Annotation</span>
        <input required maxLength={200} placeholder="v42 out" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <button type="submit">Mark it now</button>
    </Form>
  );
}
