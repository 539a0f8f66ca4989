import { Link } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";
import type { JobState } from "../api/types";
import { amountParts, formatInstant, formatRelative, micros, millis, visible, words, type Micros } from "../format";
import { useNow } from "./context";
import { usePreferences } from "./preferences";

/** Hues with one meaning each; see styles/tokens.css. */
export type Tone = "blue" | "violet" | "green" | "orange" | "red" | "slate";

/** An exact amount. The fraction is shown weaker, never cut. `pad` aligns decimal points in a column. */
export function Amount({ value, pad = 0, signed = false }: { value: string | Micros | null | undefined; pad?: number; signed?: boolean }) {
  if (value === null || value === undefined) return <span className="faint">–</span>;
  const number = typeof value === "bigint" ? value : micros(value);
  const { sign, whole, fraction } = amountParts(number);
  const plus = signed && number > 0n ? "+" : "";
  return (
    <span className="amount">
      {sign ? "\u2212" : plus}{whole}
      {pad > 0 || fraction ? (
        <span className={pad ? "frac pad" : "frac"} style={pad ? { minWidth: `${pad + 0.6}ch` } : undefined}>
          {fraction ? `.${fraction}` : ""}
        </span>
      ) : null}
    </span>
  );
}

/** A relative time; the exact instant is its title and is shown in full by `exact`. */
export function When({ at, exact = false }: { at: string | number | null | undefined; exact?: boolean }) {
  const { zone } = usePreferences();
  const now = useNow(exact ? 3_600_000 : 1_000);
  const time = typeof at === "number" ? at : millis(at);
  if (time === undefined) return <span className="faint">–</span>;
  const full = formatInstant(time, zone);
  return (
    <time dateTime={new Date(time).toISOString()} title={full} className="nowrap">
      {exact ? formatInstant(time, zone, false) : formatRelative(time, now)}
    </time>
  );
}

export function Badge({ tone, mark, children, title }: { tone: Tone; mark?: string; children: ReactNode; title?: string | undefined }) {
  return (
    <span className={`badge tone-${tone}`} title={title}>
      {mark ? <span aria-hidden="true">{mark}</span> : null}
      {children}
    </span>
  );
}

const STATES: Record<JobState, [Tone, string, string]> = {
  queued: ["violet", "○", "waiting"],
  starting: ["blue", "◔", "starting"],
  running: ["blue", "●", "running"],
  stopping: ["orange", "◐", "stopping"],
  succeeded: ["green", "✓", "succeeded"],
  failed: ["red", "✕", "failed"],
  cancelled: ["slate", "–", "cancelled"],
  lost: ["red", "?", "lost"],
  out_of_credits: ["red", "∅", "out of credits"],
  timed_out: ["red", "◷", "timed out"],
};

export const stateTone = (state: JobState): Tone => STATES[state]?.[0] ?? "slate";
export const stateWord = (state: JobState): string => STATES[state]?.[2] ?? words(state);

export function StateBadge({ state }: { state: JobState }) {
  return <Badge tone={stateTone(state)} mark={STATES[state]?.[1] ?? "·"}>{stateWord(state)}</Badge>;
}

const NODE_STATES: Record<string, [Tone, string]> = {
  ready: ["green", "●"], draining: ["orange", "◐"], drained: ["slate", "–"], maintenance: ["slate", "◇"], lost: ["red", "?"],
};

export function NodeBadge({ state }: { state: string }) {
  const [tone, mark] = NODE_STATES[state] ?? (["slate", "·"] as const);
  return <Badge tone={tone} mark={mark}>{words(state)}</Badge>;
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text).catch(() => {});
    setDone(true);
    setTimeout(() => setDone(false), 1_200);
  };
  return (
    <button type="button" className="icon-button" title={label} aria-label={label} onClick={(event) => { event.stopPropagation(); void copy(); }}>
      {done ? "✓" : "⧉"}
    </button>
  );
}

/** An id: copyable, and a link where it has a page. */
export function Id({ id, to, children }: { id: string; to?: string | undefined; children?: ReactNode }) {
  const text = children ?? <span className="mono">{visible(id)}</span>;
  return (
    <span className="id" title={visible(id)}>
      {to ? <Link to={to}>{text}</Link> : <span>{text}</span>}
      <Copy text={id} label={`Copy ${visible(id)}`} />
    </span>
  );
}

export const jobPath = (id: string) => `/jobs/${encodeURIComponent(id)}`;

export function JobLink({ id, name }: { id: string; name?: string | null | undefined }) {
  return <Id id={id} to={jobPath(id)}>{name ? visible(name) : undefined}</Id>;
}

export function AccountLink({ id, page = "/credits" }: { id: string; page?: string }) {
  return <Link to={page} search={(old: Record<string, unknown>) => ({ account: id, region: old["region"] }) as never} onClick={(event) => event.stopPropagation()}>{visible(id)}</Link>;
}

/** A number. `to` and `search` open the rows that it sums, of the same account and region. */
export function Stat({ label, tone, children, note, to, search }: { label: string; tone?: Tone; children: ReactNode; note?: ReactNode; to?: string; search?: Record<string, string> }) {
  const body = to ? <Link to={to} search={((old: Record<string, unknown>) => ({ account: old["account"], region: old["region"], ...search })) as never}>{children}</Link> : children;
  return (
    <div className="stat">
      <dt>{tone ? <i className={`key tone-${tone}`} aria-hidden="true" /> : null}{label}</dt>
      <dd>{body}</dd>
      {note ? <dd className="note">{note}</dd> : null}
    </div>
  );
}

export const Stats = ({ children, label, equation = false }: { children: ReactNode; label: string; equation?: boolean }) => (
  <dl className={equation ? "stats equation" : "stats"} aria-label={label}>{children}</dl>
);

export const Skeleton = ({ width = "60%" }: { width?: string }) => <span className="skeleton" style={{ width }} aria-hidden="true" />;
