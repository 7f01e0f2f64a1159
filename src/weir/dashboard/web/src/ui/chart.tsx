// A time series as a picture, with its numbers as text for readers who cannot see it.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { count, duration, moment } from "../lib/format";
import { marks } from "../state/marks";
import { theme } from "../state/theme";
import { drawMarks, marksAt, wordsOf } from "./marks";

export type Kind = "measured" | "carried" | "unknown";
type Values = (number | null)[];
/** A line, and the band around it from `low` to `high` if there is one. */
export type Line = { label: string; values: Values; tone: number; dashed?: boolean; step?: boolean; low?: Values; high?: Values };

export type ChartProps = {
  title: string;
  times: number[]; // milliseconds
  kinds: Kind[];
  lines: Line[];
  format: (value: number | null) => string;
  onZoom?: (fromMs: number, toMs: number) => void;
  height?: number;
};

/** Where the cursor is on this chart; null while it is on no chart. */
type Pointed = { index: number; marks: string[] } | null;

export function Chart({ title, times, kinds, lines, format, onZoom, height = 180 }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [pointed, setPointed] = useState<Pointed>(null);
  const zoom = useRef(onZoom);
  zoom.current = onZoom;
  const kindsNow = useRef(kinds);
  kindsNow.current = kinds;
  const shape = lines.map((line) => `${line.label}${line.tone}${line.dashed}${!!line.low}`).join("|");

  useEffect(() => {
    const element = box.current!;
    const point = (made: uPlot) => {
      const index = made.cursor.idx;
      setPointed(index == null ? null : { index, marks: marksAt(made).map(wordsOf) });
    };
    const made = new uPlot(options(element, lines, format, height, kindsNow, zoom, point), table(times, lines), element);
    plot.current = made;
    const watcher = new ResizeObserver(() => made.setSize({ width: element.clientWidth || 300, height }));
    watcher.observe(element);
    const redraw = () => made.redraw(false);
    const unwatch = [theme.subscribe(redraw), marks.subscribe(redraw)];
    return () => {
      unwatch.forEach((stop) => stop());
      watcher.disconnect();
      made.destroy();
    };
  }, [shape, height]);

  useEffect(() => plot.current?.setData(table(times, lines)), [times, lines]);

  // While the end is unknown, the last known value is not the one now.
  const newest = (line: Line) => format(kinds.at(-1) === "unknown" ? null : lastKnown(line.values));
  const summary = lines.map((line) => `${line.label} ${newest(line)}`).join(", ");
  return (
    <figure class="chart">
      <figcaption>
        <h3>{title}</h3>
        <ul class="legend">
          {pointed && times[pointed.index] != null && <li class="pointed">{moment(times[pointed.index])}</li>}
          {lines.map((line) => (
            <li key={line.label}>
              <i class={`swatch tone-${line.tone}${line.dashed ? " dashed" : ""}`} />
              {line.label} <b>{pointed ? valueAt(line, pointed.index, format) : newest(line)}</b>
            </li>
          ))}
          {pointed?.marks.map((words) => (
            <li key={words} class="pointed">
              {words}
            </li>
          ))}
        </ul>
      </figcaption>
      <div ref={box} role="img" aria-label={`${title}: ${summary || "no data"}`} />
    </figure>
  );
}

/** The value of a point, with the ends of its band where they differ. */
function valueAt(line: Line, index: number, format: (value: number | null) => string): string {
  const value = format(line.values[index] ?? null);
  const [low, high] = [line.low?.[index], line.high?.[index]];
  return low != null && high != null && low !== high ? `${value} (${format(low)} to ${format(high)})` : value;
}

function banded(lines: Line[]): Line[] {
  return lines.filter((line) => line.low && line.high);
}

function table(times: number[], lines: Line[]): uPlot.AlignedData {
  const ends = banded(lines).flatMap((line) => [line.high!, line.low!]);
  return [times.map((time) => time / 1000), ...lines.map((line) => line.values), ...ends] as uPlot.AlignedData;
}

export function lastKnown(values: (number | null)[]): number | null {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] != null) return values[i]!;
  return null;
}

const decades = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
const wholes = decades.flatMap((size) => [size, 2 * size, 5 * size]);
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** Distances between the ticks of an axis for counts and durations: nobody counts half messages or in 100 seconds. */
const steps = new Map<unknown, number[]>([
  [count, wholes],
  [
    duration,
    [
      ...wholes.filter((size) => size <= 20_000),
      ...[30_000, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE],
      ...[1, 2, 6, 12, 24, 48, 120, 240, 480, 960, 1920].map((hours) => hours * HOUR),
    ],
  ],
]);

/** Tick labels in the reader's zone and manner: times of day, or dates once the ticks are days apart. */
function tickTimes(ticks: number[]): string[] {
  const step = ticks.length > 1 ? ticks[1]! - ticks[0]! : 60;
  const style: Intl.DateTimeFormatOptions =
    step >= 86_400 ? { month: "short", day: "numeric" } : step >= 60 ? { hour: "2-digit", minute: "2-digit" } : { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const clock = new Intl.DateTimeFormat(undefined, style);
  return ticks.map((tick) => clock.format(tick * 1000));
}

/** The value of a colour variable in the current theme, because a canvas cannot resolve variables itself. */
function color(name: string): string {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

const probe = document.createElement("i");
probe.hidden = true;
document.body.append(probe);

/** One cursor over all charts. Only its moves are shared: a drag zooms one chart, and the address zooms the rest. */
const SHARED_CURSOR: uPlot.Cursor.Sync = {
  key: "charts",
  scales: ["x", null],
  filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
};

/** The ends of a band are not drawn themselves. */
const END_OF_BAND: uPlot.Series = { width: 0, points: { show: false }, spanGaps: false };

function options(
  element: HTMLElement,
  lines: Line[],
  format: (value: number | null) => string,
  height: number,
  kinds: { current: Kind[] },
  zoom: { current: ((fromMs: number, toMs: number) => void) | undefined },
  point: (plot: uPlot) => void,
): uPlot.Options {
  const withBand = banded(lines);
  // A fill under several lines, or under a line that has a band, would hide the lines behind it.
  const filled = lines.filter((line) => !line.dashed).length === 1 && !withBand.length;
  return {
    width: element.clientWidth || 300,
    height,
    legend: { show: false },
    cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 }, sync: SHARED_CURSOR },
    bands: withBand.map((line, i) => ({
      series: [1 + lines.length + 2 * i, 2 + lines.length + 2 * i] as [number, number],
      fill: () => color(`--tone-${line.tone}-band`),
    })),
    scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1.08] } },
    axes: [
      {
        stroke: () => color("--muted"),
        grid: { stroke: () => color("--line"), width: 1 },
        ticks: { show: false },
        size: 30,
        space: 80,
        values: (_, ticks) => tickTimes(ticks),
      },
      {
        stroke: () => color("--muted"),
        grid: { stroke: () => color("--line"), width: 1 },
        ticks: { show: false },
        size: 82,
        ...(steps.has(format) ? { incrs: steps.get(format)! } : {}),
        values: (_, ticks) => ticks.map((tick) => format(tick)),
      },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: () => color(`--tone-${line.tone}`),
        width: line.dashed ? 1 : 1.6,
        ...(line.dashed ? { dash: [5, 4] } : {}),
        ...(filled && !line.dashed ? { fill: () => color(`--tone-${line.tone}-fill`) } : {}),
        points: { show: false },
        spanGaps: false,
      })),
      ...withBand.flatMap(() => [END_OF_BAND, END_OF_BAND]),
    ],
    hooks: {
      drawClear: [(plot) => shade(plot, kinds.current)],
      draw: [(plot) => drawMarks(plot, color)],
      setCursor: [point],
      setSelect: [
        (plot) => {
          if (plot.select.width < 8) return;
          const from = plot.posToVal(plot.select.left, "x") * 1000;
          const to = plot.posToVal(plot.select.left + plot.select.width, "x") * 1000;
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          zoom.current?.(Math.floor(from), Math.ceil(to));
        },
      ],
    },
  };
}

/** Parts that are not measured look different: carried is tinted, unknown is hatched. */
function shade(plot: uPlot, kinds: Kind[]) {
  const times = plot.data[0];
  if (!times.length) return;
  const step = times.length > 1 ? times[1]! - times[0]! : 1;
  const { ctx } = plot;
  let start = 0;
  for (let i = 1; i <= kinds.length; i++) {
    if (i < kinds.length && kinds[i] === kinds[start]) continue;
    const kind = kinds[start];
    if (kind && kind !== "measured") {
      const left = plot.valToPos(times[start]!, "x", true);
      const right = plot.valToPos(times[i - 1]! + step, "x", true);
      ctx.save();
      ctx.fillStyle = kind === "unknown" ? hatch(ctx) : color("--carried");
      ctx.fillRect(left, plot.bbox.top, Math.min(right, plot.bbox.left + plot.bbox.width) - left, plot.bbox.height);
      ctx.restore();
    }
    start = i;
  }
}

function hatch(ctx: CanvasRenderingContext2D): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d")!;
  pen.strokeStyle = color("--unknown");
  pen.beginPath();
  pen.moveTo(0, 8);
  pen.lineTo(8, 0);
  pen.stroke();
  return ctx.createPattern(tile, "repeat") ?? color("--unknown");
}
