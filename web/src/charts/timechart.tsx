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
  /** How a value is written; credits if absent. */
  format?: (value: Micros) => string;
}

export const seriesColor = ({ tone, shade: place }: ChartSeries): string => (place ? shade(tone, ...place) : token(tone));

/** Values over time on a canvas. The table twin beside it (twin.tsx) has the same numbers. */
export function TimeChart({ label, at, series, marks = [], height = 240, format = formatAmount }: Props) {
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
    const data = [at.map((time) => time / 1000), ...drawn.map(({ sums }) => sums.map((value) => (value === null ? null : pixels(value))))];
    const plot = new uPlot(options(width, height, drawn, marks, zone, setHover), data as uPlot.AlignedData, element);
    return () => plot.destroy();
  }, [at, drawn, marks, width, height, theme, zone]);
  const time = hover ? at[hover.index] : undefined;
  return (
    <div className="chart" ref={frame} role="img" aria-label={`${label}. The table view has the values.`} style={{ minHeight: height }}>
      {hover && time !== undefined ? (
        <div className="tip" style={{ left: Math.min(hover.left + 12, Math.max(0, width - 260)), top: 8 }}>
          <strong>{formatInstant(time, zone, false)}</strong>
          {[...series].reverse().map((one) => {
            const value = one.values[hover.index];
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
  const stacked = areas.map((one, i): Drawn => ({ ...one, sums: (sums[i] ?? []).map((value, j) => (one.values[j] === null ? null : value)) }));
  return [...stacked.reverse(), ...series.filter((one) => !one.area).map((one): Drawn => ({ ...one, sums: one.values }))];
}

function options(width: number, height: number, drawn: Drawn[], marks: ChartMark[], zone: Zone, hover: (at: { index: number; left: number } | null) => void): uPlot.Options {
  const text = token("text-3");
  const grid = { stroke: token("grid"), width: 1 };
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  const axis = { stroke: text, grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const times: uPlot.Axis = { ...axis, space: 90, size: 30, values: (_, ticks, __, ___, step) => ticks.map((tick, i) => tickName(tick * 1000, step, zone, i === 0)) };
  return {
    width, height, legend: { show: false }, padding: [8, 12, 0, 0],
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    scales: { x: { time: true }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] } },
    axes: [times, { ...axis, size: 70, values: (_, ticks) => ticks.map((tick) => shortAmount(BigInt(Math.round(tick * 1_000_000)))) }],
    series: [{}, ...drawn.map((one): uPlot.Series => {
      const color = seriesColor(one);
      return {
        stroke: color, width: one.area ? 1.5 : 2, ...(one.area ? { fill: mix(parseHex(color), parseHex(token("bg")), 0.62) } : {}),
        ...(one.dashed ? { dash: [5, 4] } : {}), ...(one.step && stepped ? { paths: stepped } : {}), points: { show: one.values.length < 3 }, spanGaps: false,
      };
    })],
    ...(zone === "utc" ? { tzDate: (seconds: number) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") } : {}),
    hooks: {
      setCursor: [(plot) => { const { idx, left } = plot.cursor; hover(idx === null || idx === undefined || left === undefined || left < 0 ? null : { index: idx, left: left + 70 }); }],
      draw: [(plot) => drawMarks(plot, marks)],
    },
  };
}

/** The day for steps of days; else the time, with the day at the first tick and at midnight. */
function tickName(at: number, step: number, zone: Zone, isFirst: boolean): string {
  const text = formatInstant(at, zone, false);
  const [day, time] = [text.slice(5, 10), text.slice(11)];
  if (step >= 86_400) return day;
  return isFirst || time === "00:00" ? `${day} ${time}` : time;
}

function drawMarks(plot: uPlot, marks: ChartMark[]) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.textAlign = "left";
  ctx.font = `${12 * ratio}px system-ui, sans-serif`;
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
    const left = Math.min(x + 4 * ratio, bbox.left + bbox.width - size);
    if (left < lastRight + 8 * ratio) continue;
    ctx.fillText(mark.text, left, bbox.top + 12 * ratio);
    lastRight = left + size;
  }
  ctx.restore();
}
