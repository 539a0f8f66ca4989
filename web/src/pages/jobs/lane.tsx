import { useMemo } from "react";
import type { Job, TimelineEntry } from "../../api/types";
import { formatAmount, formatInstant, micros, millis, visible, words, type Micros } from "../../format";
import type { Tone } from "../../ui/basics";
import { useNow } from "../../ui/context";
import { usePreferences } from "../../ui/preferences";

interface Span {
  from: number;
  to: number;
  tone: Tone;
  text: string;
}

/** Parts of a job's life: waiting, attempts, and the waits between them. */
export function spansOf(job: Job, now: number): Span[] {
  const end = millis(job.ended_at) ?? now;
  const spans: Span[] = [];
  let from = millis(job.created_at) ?? end;
  for (const attempt of job.attempts) {
    const started = millis(attempt.started_at);
    if (started === undefined) continue;
    if (started > from) spans.push({ from, to: started, tone: "violet", text: "waiting" });
    const ended = millis(attempt.ended_at) ?? end;
    const bad = attempt.end_reason && ["failed", "lost", "out_of_credits", "timed_out"].includes(attempt.end_reason);
    const stopped = attempt.end_reason && ["preempted", "drained", "cancelled"].includes(attempt.end_reason);
    spans.push({ from: started, to: ended, tone: bad ? "red" : stopped ? "orange" : attempt.ended_at ? "green" : "blue", text: attempt.end_reason ? words(attempt.end_reason) : "running" });
    from = ended;
  }
  if (end > from) spans.push({ from, to: end, tone: job.ended_at ? "slate" : job.attempts.some((one) => !one.ended_at) ? "blue" : "violet", text: job.ended_at ? words(job.state) : job.state === "queued" ? "waiting" : words(job.state) });
  return spans;
}

/** The part of the lane from which a span has room for its name. */
const MIN_LABELLED = 0.07;

/** Marks of money on the lane, by kind of entry. */
const MARKS: Record<string, [string, Tone]> = {
  hold_placed: ["▼", "violet"], hold_pinned: ["▽", "violet"], hold_closed: ["▲", "green"], refunded: ["◆", "green"],
  attempt_started: ["▸", "blue"], attempt_stopping: ["◂", "orange"], attempt_ended: ["■", "slate"], job_ended: ["■", "slate"],
  cancel_asked: ["✕", "orange"], exhaustion_warned: ["!", "orange"], hold_captured: ["●", "blue"], charged: ["●", "blue"],
};

/** What each mark means; only those on the lane are explained. */
const LEGEND: [string, string[]][] = [
  ["hold placed", ["hold_placed"]], ["price pinned", ["hold_pinned"]], ["started", ["attempt_started"]], ["charged", ["hold_captured", "charged"]],
  ["credits run out", ["exhaustion_warned"]], ["cancellation", ["cancel_asked"]], ["stops", ["attempt_stopping"]], ["ended", ["attempt_ended", "job_ended"]],
  ["hold closed, rest returned", ["hold_closed"]], ["refund", ["refunded"]],
];

/** Charges closer than this part of the lane are one mark. */
const MIN_APART = 0.012;

export interface LaneMark {
  at: number;
  type: string;
  amount: Micros | undefined;
  text: string;
}

/** Marks of a timeline. A meter reports every few seconds, so its charges are summed where they are close. */
export function marksOf(timeline: TimelineEntry[], start: number, end: number): LaneMark[] {
  const marks: LaneMark[] = [];
  let charge: LaneMark | undefined;
  for (const entry of timeline) {
    if (entry.source !== "ledger" || !MARKS[entry.type]) continue;
    const mark: LaneMark = { at: millis(entry.at) ?? start, type: entry.type, amount: entry.amount ? micros(entry.amount) : undefined, text: entry.detail };
    const isCharge = entry.type === "hold_captured";
    if (isCharge && charge && mark.at - charge.at < MIN_APART * (end - start)) {
      charge.amount = (charge.amount ?? 0n) + (mark.amount ?? 0n);
      charge.text = "several reports";
      continue;
    }
    if (isCharge) charge = mark;
    marks.push(mark);
  }
  return marks;
}

/** Time of a job from left to right, with its holds, charges and refunds. */
export function Lane({ job, timeline }: { job: Job; timeline: TimelineEntry[] }) {
  const now = useNow();
  const { zone } = usePreferences();
  const start = millis(job.created_at) ?? now;
  const end = Math.max(millis(job.ended_at) ?? now, ...timeline.map((entry) => millis(entry.at) ?? 0), start + 1000);
  const place = (at: number) => `${(Math.max(0, Math.min(end - start, at - start)) / (end - start)) * 100}%`;
  const marks = useMemo(() => marksOf(timeline, start, end), [timeline, start, end]);
  return (
    <div className="lane">
      <div className="track" role="img" aria-label="Life of the job; the timeline below has the same entries">
        {spansOf(job, now).map((span, i) => (
          <i key={i} className={`tone-${span.tone}`} style={{ left: place(span.from), width: `calc(${place(span.to)} - ${place(span.from)})` }} title={span.text}>{(span.to - span.from) / (end - start) < MIN_LABELLED ? null : span.text}</i>
        ))}
      </div>
      <div className="marks" aria-hidden="true">
        {marks.map(({ at, type, amount, text }, i) => {
          const [mark, tone] = MARKS[type] ?? ["·", "slate"];
          return <span key={i} className={`mark tone-${tone}`} data-mark={type} style={{ left: place(at) }} title={`${words(type)}${amount ? ` ${formatAmount(amount)}` : ""}: ${visible(text)}`}>{mark}</span>;
        })}
      </div>
      <div className="axis">
        <span style={{ left: "0%" }}>{formatInstant(start, zone).slice(0, 19)}</span>
        <span style={{ left: "100%" }}>{formatInstant(end, zone).slice(0, 19)}</span>
      </div>
      <ul className="legend" aria-hidden="true">
        {LEGEND.flatMap(([text, types]) => {
          const found = marks.find(({ type }) => types.includes(type));
          const [mark, tone] = (found && MARKS[found.type]) ?? [];
          return mark ? [<li key={text}><span className={`text-tone tone-${tone}`}>{mark}</span>{text}</li>] : [];
        })}
      </ul>
    </div>
  );
}
