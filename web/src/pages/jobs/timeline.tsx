import type { TimelineEntry } from "../../api/types";
import { count, formatAmount, formatInstant, micros, millis, sum, visible, words, type Micros } from "../../format";
import { Amount, type Tone } from "../../ui/basics";
import { usePreferences } from "../../ui/preferences";

/** Reports of meters; many in a row are one line. */
const METER = new Set(["hold_captured", "hold_extended", "usage_metered", "attempt_funded"]);

export interface TimelineGroup {
  key: string;
  at: number;
  entries: TimelineEntry[];
  isMeter: boolean;
}

/** Joins neighbouring reports of meters. */
export function groupTimeline(entries: TimelineEntry[]): TimelineGroup[] {
  const groups: TimelineGroup[] = [];
  for (const entry of entries) {
    const isMeter = METER.has(entry.type);
    const last = groups.at(-1);
    if (isMeter && last?.isMeter) last.entries.push(entry);
    else groups.push({ key: `${entry.source}-${entry.position}-${entry.type}-${groups.length}`, at: millis(entry.at) ?? 0, entries: [entry], isMeter });
  }
  return groups;
}

const captured = (entries: TimelineEntry[]): Micros =>
  sum(entries.filter((entry) => entry.type === "hold_captured").map((entry) => micros(entry.amount)));

/** Cost over time: each captured amount added to those before. */
export function costLine(entries: TimelineEntry[]): { at: number[]; total: Micros[] } {
  let total = 0n;
  const at: number[] = [];
  const totals: Micros[] = [];
  for (const entry of entries) {
    if (entry.source !== "ledger") continue;
    if (entry.type === "hold_captured") total += micros(entry.amount);
    else if (entry.type === "refunded") total -= micros(entry.amount);
    else if (entry.type !== "job_submitted" && entry.type !== "attempt_started") continue;
    const time = millis(entry.at) ?? 0;
    if (at.at(-1) === time) totals[totals.length - 1] = total;
    else { at.push(time); totals.push(total); }
  }
  return { at, total: totals };
}

/** What was taken from each grant. One grant may be drawn on in several parts. */
export function bySource(slices: NonNullable<TimelineEntry["slices"]>): [string, Micros][] {
  const taken = new Map<string, Micros>();
  for (const { grant, amount } of slices) taken.set(grant, (taken.get(grant) ?? 0n) + micros(amount));
  return [...taken];
}

const tones: [RegExp, Tone][] = [
  [/^hold_placed|^hold_pinned|queued/, "violet"], [/refund|hold_closed|succeeded/, "green"], [/stopping|preempt|cancel|drain|warned/, "orange"],
  [/lost|failed|expired|denied/, "red"], [/started|captured|metered|confirmed|proposed|charged/, "blue"],
];
const toneOf = (type: string): Tone => tones.find(([pattern]) => pattern.test(type))?.[1] ?? "slate";

/** Money and placement of one job, oldest first. */
export function TimelineList({ entries }: { entries: TimelineEntry[] }) {
  const { zone } = usePreferences();
  return (
    <ol className="timeline">
      {groupTimeline(entries).map((group) => {
        const [first] = group.entries;
        if (!first) return null;
        const many = group.isMeter && group.entries.length > 1;
        const amount = many ? captured(group.entries) : first.amount ? micros(first.amount) : undefined;
        return (
          <li key={group.key}>
            <time className="muted small" title={formatInstant(group.at, zone)}>{formatInstant(group.at, zone).slice(5, 19)}</time>
            <span className="muted small">{visible(first.source)} {first.position}</span>
            <span className="break">
              <span className={`text-tone tone-${toneOf(first.type)}`}>{many ? "metered" : words(first.type)}</span>{" "}
              <span className="muted">{many ? count(group.entries.length, "report") : words(first.type).endsWith(first.detail) ? "" : visible(first.detail)}</span>
              {!many && first.slices?.length ? <span className="faint small"> from {bySource(first.slices).map(([grant, taken]) => `${visible(grant)} ${formatAmount(taken)}`).join(", ")}</span> : null}
            </span>
            <span className="end">{amount === undefined || amount === 0n ? "" : <Amount value={amount} />}</span>
          </li>
        );
      })}
    </ol>
  );
}
