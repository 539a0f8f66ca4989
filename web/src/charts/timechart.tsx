import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import { formatAmount, formatInstant, pixels, shortAmount, visible, type Micros, type Zone } from "../format";
import type { Tone } from "../ui/basics";
import { usePreferences, useTheme } from "../ui/preferences";
import { mix, parseHex, shade, token } from "./colors";
import { stack } from "./stack";

export interface ChartSeries {
  name: string;
  tone: Tone;
  /** Place in the shades of its hue, and their number. */
  shade?: [number, number];
  values: (Micros | null)[];
  /** Lies on the series before it. */
  area?: boolean;
  /** The upper or the lower edge of a band that is filled. */
  edge?: "upper" | "lower";
  dashed?: boolean;
  step?: boolean;
}

export interface ChartMark {
  at: number;
  text: string;
  tone: Tone;
}

interface Props {
  label: string;
  at: number[];
  series: ChartSeries[];
  marks?: ChartMark[];
  height?: number;
  /** Where the last step ends. */
  end?: number | undefined;
  /** The first and the last instant shown; those of the values if absent. */
  range?: [number, number] | undefined;
  /** How a value is written; credits if absent. */
  format?: (value: Micros) => string;
}

export const seriesColor = ({ tone, shade: place }: ChartSeries): string => (place ? shade(tone, ...place) : token(tone));

/** Values over time on a canvas. The table twin beside it (twin.tsx) has the same numbers. */
export function TimeChart({ label, at, series, marks = [], height = 240, end, range, format = formatAmount }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const { zone } = usePreferences();
  const [hover, setHover] = useState<{ index: number; left: number } | null>(null);
  const [width, setWidth] = useState(0);
  const drawn = useMemo(() => prepare(series), [series]);
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const element = frame.current;
    if (!element || width < 50 || at.length === 0) return;
    const more = end !== undefined && end > (at.at(-1) ?? end) ? [end] : [];
    const points = (sums: (Micros | null)[]) => [...sums, ...more.map(() => sums.at(-1) ?? null)].map((value) => (value === null ? null : pixels(value)));
    const data = [[...at, ...more].map((time) => time / 1000), ...drawn.map(({ sums }) => points(sums))];
    const plot = new uPlot(options(width, height, drawn, marks, zone, range, setHover), data as uPlot.AlignedData, element);
    return () => plot.destroy();
  }, [at, drawn, marks, width, height, theme, zone, end, range?.[0], range?.[1]]);
  const index = hover ? Math.min(hover.index, at.length - 1) : 0;
  const time = hover ? at[index] : undefined;
  return (
    <div className="chart" ref={frame} role="img" aria-label={`${label}. The table view has the values.`} style={{ minHeight: height }}>
      {hover && time !== undefined ? (
        <div className="tip" style={{ left: Math.min(hover.left + 12, Math.max(0, width - 260)), top: 8 }}>
          <strong>{formatInstant(time, zone, false)}</strong>
          {[...series].reverse().map((one) => {
            const value = one.values[index];
            return value === null || value === undefined ? null : (
              <div key={one.name}><i className="key" style={{ background: seriesColor(one) }} /><span>{visible(one.name)}</span><span>{format(value)}</span></div>
            );
          })}
        </div>
      ) : null}
    </div>
  );
}

interface Drawn extends ChartSeries {
  sums: (Micros | null)[];
}

/** Areas are stacked and drawn from the top one down, so that lower ones cover them. */
function prepare(series: ChartSeries[]): Drawn[] {
  const areas = series.filter((one) => one.area);
  const sums = stack(areas.map((one) => one.values));
  const stacked = areas.map((one, i): Drawn => ({ ...one, sums: (sums[i] ?? []).map((value, j) => (one.values[j] === null || isGone(one, j) ? null : value)) }));
  return [...stacked.reverse(), ...series.filter((one) => !one.area).map((one): Drawn => ({ ...one, sums: one.values }))];
}

/** Whether an area has ended before a point: no line is drawn along the edge of the one below. */
const isGone = ({ values, step }: ChartSeries, at: number) => !step && at > 0 && values[at] === 0n && values[at - 1] === 0n;

function options(width: number, height: number, drawn: Drawn[], marks: ChartMark[], zone: Zone, range: [number, number] | undefined, hover: (at: { index: number; left: number } | null) => void): uPlot.Options {
  const text = token("text-3");
  const grid = { stroke: token("grid"), width: 1 };
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  const axis = { stroke: text, grid, ticks: { show: false }, font: `12px ${token("sans")}` };
  const edge = (which: "upper" | "lower") => drawn.findIndex((one) => one.edge === which) + 1;
  const times: uPlot.Axis = { ...axis, space: 90, size: 30, values: (_, ticks, __, ___, step) => ticks.map((tick, i) => tickName(tick * 1000, step, zone, i === 0)) };
  return {
    width, height, legend: { show: false }, padding: [8, 24, 0, 0],
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    scales: { x: { time: true, ...(range ? { range: [range[0] / 1000, range[1] / 1000] as [number, number] } : {}) }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] } },
    axes: [times, { ...axis, size: 70, values: (_, ticks) => ticks.map((tick) => shortAmount(BigInt(Math.round(tick * 1_000_000)))) }],
    series: [{}, ...drawn.map((one): uPlot.Series => {
      const color = seriesColor(one);
      return {
        stroke: color, width: one.edge ? 1 : one.area ? 1.5 : 2, ...(one.area ? { fill: mix(parseHex(color), parseHex(token("bg")), 0.62) } : {}),
        ...(one.dashed ? { dash: [5, 4] } : {}), ...(one.step && stepped ? { paths: stepped } : {}), points: { show: one.values.length < 3 }, spanGaps: false,
      };
    })],
    ...(edge("upper") && edge("lower") ? { bands: [{ series: [edge("upper"), edge("lower")] as [number, number], fill: `${token("slate")}24` }] } : {}),
    ...(zone === "utc" ? { tzDate: (seconds: number) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") } : {}),
    hooks: {
      setCursor: [(plot) => { const { idx, left } = plot.cursor; hover(idx === null || idx === undefined || left === undefined || left < 0 ? null : { index: idx, left: left + 70 }); }],
      draw: [(plot) => drawMarks(plot, marks)],
    },
  };
}

/** The day for steps of days; else the time, with the day at the first tick and at midnight. */
function tickName(at: number, step: number, zone: Zone, isFirst: boolean): string {
  const text = formatInstant(at, zone);
  const [day, time] = [text.slice(5, 10), text.slice(11, step < 60 ? 19 : 16)];
  if (step >= 86_400) return day;
  return isFirst || text.slice(11, 19) === "00:00:00" ? `${day} ${time}` : time;
}

function drawMarks(plot: uPlot, marks: ChartMark[]) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.textAlign = "left";
  ctx.font = `${12 * ratio}px ${token("sans")}`;
  let lastRight = -Infinity;
  for (const mark of [...marks].sort((a, b) => a.at - b.at)) {
    const x = plot.valToPos(mark.at / 1000, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = token(mark.tone);
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const size = ctx.measureText(mark.text).width;
    // Beside its line: right of it, or left of it where the right has no room.
    const right = x + 4 * ratio;
    const left = right + size > bbox.left + bbox.width ? x - 4 * ratio - size : right;
    if (left < lastRight + 8 * ratio) continue;
    ctx.fillText(mark.text, left, bbox.top + 12 * ratio);
    lastRight = left + size;
  }
  ctx.restore();
}
