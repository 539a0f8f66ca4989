import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { api } from "../../api/queries";
import type { Budget, Job } from "../../api/types";
import { count, formatShare, micros, millis, perMille, visible, words } from "../../format";
import { Amount, jobPath, Skeleton, When, type Tone } from "../../ui/basics";
import { useNow } from "../../ui/context";
import { ProblemNote } from "../../ui/messages";
import { Section } from "../../ui/page";
import { useBudgetTree } from "../budgets";
import { SOON, useGrants } from "../credits";
import { Reason, useReasons } from "../jobs/columns";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
/** Lines shown at once; the pages have the rest. */
const MAX_LINES = 8;

interface Line {
  key: string;
  tone: Tone;
  mark: string;
  text: ReactNode;
  right: ReactNode;
}

export const isNearLimit = (budget: Budget) => perMille(micros(budget.used), micros(budget.limit)) >= 800;

/** Jobs that have waited for more than an hour, longest first. */
export const longWaits = (jobs: Job[], now: number) => jobs.filter((job) => now - (millis(job.created_at) ?? now) > HOUR).sort((a, b) => (a.created_at < b.created_at ? -1 : 1));

/** The first job of each account, name and state, and how many there are. */
export function sameName(jobs: Job[]): [Job, number][] {
  const groups = new Map<string, [Job, number]>();
  for (const job of jobs) {
    const key = job.spec.name ? JSON.stringify([job.account, job.spec.name, job.state]) : job.id;
    const found = groups.get(key);
    if (found) found[1] += 1;
    else groups.set(key, [job, 1]);
  }
  return [...groups.values()];
}

/** What needs a decision: expiring credits, budgets near their limit, long waits, failures. */
export function Attention({ account }: { account: string }) {
  const now = useNow(10_000);
  const { grants, error: grantsError, isCut } = useGrants(account, true);
  const budgets = useBudgetTree(account);
  const filter = account ? { account } : {};
  const waiting = useQuery(api.jobsNow({ ...filter, state: "queued" }));
  const failed = useQuery(api.jobsNow({ ...filter, state: "failed" }));
  const exhausted = useQuery(api.jobsNow({ ...filter, state: "out_of_credits" }));
  const reasons = useReasons((waiting.data?.data.length ?? 0) > 0);
  const lines: Line[] = [];
  for (const grant of grants ?? []) {
    const at = millis(grant.expires_at);
    if (at === undefined || at <= now || at - now > SOON || micros(grant.available) === 0n) continue;
    lines.push({ key: `grant ${grant.id}`, tone: "orange", mark: "◷", text: <Link to="/credits" search={{ account: grant.account, open: grant.id } as never}><Amount value={grant.available} /> credits of {visible(grant.id)} expire</Link>, right: <When at={at} /> });
  }
  for (const budget of (budgets.all ?? []).filter(isNearLimit)) {
    lines.push({ key: `budget ${budget.account} ${budget.name}`, tone: "orange", mark: "◆", text: <Link to="/budgets" search={{ account: budget.account, open: `${budget.account} ${budget.name}` } as never}>Budget {visible(budget.name)} of {visible(budget.account)} is {formatShare(micros(budget.used), micros(budget.limit))} used</Link>, right: <><Amount value={budget.remaining} /> left</> });
  }
  for (const [job, many] of sameName(longWaits(waiting.data?.data ?? [], now))) {
    lines.push({ key: job.id, tone: "violet", mark: "○", text: <Link to={jobPath(job.id)}>{visible(job.spec.name) || visible(job.id)} waits <span className="muted"><Reason job={job} reasons={reasons} before="for " />{many > 1 ? `, and ${count(many - 1, "more job")} of this name` : ""}</span></Link>, right: <When at={job.created_at} /> });
  }
  for (const [job, many] of sameName([...(failed.data?.data ?? []), ...(exhausted.data?.data ?? [])].filter((one) => now - (millis(one.ended_at) ?? 0) < DAY))) {
    lines.push({ key: job.id, tone: "red", mark: "✕", text: <Link to={jobPath(job.id)}>{visible(job.spec.name) || visible(job.id)} {words(job.state)}{many > 1 ? <span className="muted"> {many} times, last</span> : null}</Link>, right: <When at={job.ended_at} /> });
  }
  const jobs = [waiting, failed, exhausted];
  const error = grantsError ?? budgets.error ?? jobs.find((query) => query.error)?.error;
  const isKnown = grants !== undefined && budgets.all !== undefined && jobs.every((query) => query.data);
  const isPart = isCut || budgets.isCut || jobs.some((query) => query.data?.has_more);
  return (
    <Section title="What needs you">
      {error && !isKnown ? <ProblemNote error={error} retry={() => { for (const query of jobs) void query.refetch(); }} /> : null}
      {lines.length === 0 ? isKnown ? <p className="muted">{isPart ? "Of what was read, nothing" : "Nothing"} expires within 14 days, no budget is above 80 %, no job has waited for an hour or failed in the last day.</p>
        : error ? null : <div aria-busy="true"><span className="sr">Loading</span><Skeleton width="50%" /></div> : (
        <ul className="attention">
          {lines.slice(0, MAX_LINES).map((line) => <li key={line.key} className={`tone-${line.tone}`}><span className="text-tone" aria-hidden="true">{line.mark}</span><span>{line.text}</span><span className="muted">{line.right}</span></li>)}
          {lines.length > MAX_LINES ? <li><span /><span className="muted">{lines.length - MAX_LINES} more on the pages Credits, Budgets and Jobs</span><span /></li> : null}
        </ul>
      )}
    </Section>
  );
}
