import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { path, send, type Answer } from "../api/client";
import { MAX_ROWS, readAll, type JobFilter } from "../api/queries";
import type { Job } from "../api/types";
import { count, sum, visible } from "../format";
import { Amount, JobLink, StateBadge } from "../ui/basics";
import { Loaded } from "../ui/messages";
import { DataTable } from "../ui/table";
import { hasText, holdLeft, LIVE_STATES } from "../pages/jobs/math";
import { ActionDialog } from "./action";

/** Requests at the same time. */
const AT_ONCE = 8;

/** Cancels every job that a filter finds, after showing which. */
export function CancelManyDialog({ filter, text, close }: { filter: JobFilter; text: string | undefined; close: () => void }) {
  const states = filter.state ? [filter.state] : [...LIVE_STATES];
  const found = useQuery({
    queryKey: ["cancel", filter, text],
    queryFn: async ({ signal }) => {
      const lists = await Promise.all(states.map((state) => readAll<Job>("/v1/jobs", { ...filter, state }, signal)));
      const jobs = lists.flatMap(({ rows }) => rows).filter((job) => (LIVE_STATES as readonly string[]).includes(job.state) && hasText(job, text ?? ""));
      return { jobs, isCut: lists.some((list) => list.isCut) };
    },
  });
  const [progress, setProgress] = useState<{ done: number; failed: number; all: number } | null>(null);
  const jobs = useMemo(() => found.data?.jobs ?? [], [found.data]);
  const run = async (key: string) => {
    const answers: Answer<unknown>[] = [];
    const failures: Error[] = [];
    for (let at = 0; at < jobs.length && failures.length === 0; at += AT_ONCE) {
      const some = jobs.slice(at, at + AT_ONCE);
      const results = await Promise.allSettled(some.map((job) => send("POST", path`/v1/jobs/${job.id}/cancel`, { idempotencyKey: `${key}-${job.id}` })));
      for (const result of results) {
        if (result.status === "fulfilled") answers.push(result.value);
        else failures.push(result.reason as Error);
      }
      setProgress({ done: answers.length, failed: failures.length, all: jobs.length });
    }
    const [first] = failures;
    if (first) {
      void found.refetch();
      throw first;
    }
    return answers;
  };
  const words = [filter.account && `account ${filter.account}`, filter.state && `state ${filter.state}`, filter.label && `label ${filter.label}`, text && `text "${text}"`].filter(Boolean).join(", ");
  return (
    <ActionDialog
      title="Cancel jobs by filter" verb={`Cancel ${count(jobs.length, "job")}`} danger ready={jobs.length > 0} close={close} run={run}
      effect={
        <Loaded query={found}>
          {({ jobs: all, isCut }) => (
            <>
              {progress?.failed ? <p role="status"><strong>{count(progress.done, "job")} of {progress.all} cancelled, {progress.failed} not.</strong> The rest was not tried. The list below is what is left.</p> : null}
              {isCut ? <p className="muted small">Only the first {MAX_ROWS.toLocaleString("en-US")} jobs of each state were read. Repeat it for the rest.</p> : null}
              <p>{visible(words) || "No filter: every job in your scope"}. {count(all.length, "job")} would be cancelled; up to <Amount value={sum(all.map(holdLeft))} /> held credits return. What was charged stays charged.</p>
              <DataTable label="Jobs to cancel" rows={all} rowId={(job) => job.id} columns={[
                { id: "state", header: "State", cell: (job) => <StateBadge state={job.state} /> },
                { id: "job", header: "Job", cell: (job) => <JobLink id={job.id} name={job.spec.name} /> },
                { id: "account", header: "Account", cell: (job) => visible(job.account) },
              ]} empty={<p className="muted">No live job matches.</p>} />
            </>
          )}
        </Loaded>
      }
      done={(answers) => <span>{count(answers.length, "job")} cancelled.</span>}
    />
  );
}
