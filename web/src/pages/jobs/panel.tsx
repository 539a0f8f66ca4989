import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api } from "../../api/queries";
import type { Job } from "../../api/types";
import { formatAmount, visible } from "../../format";
import { AccountLink, Amount, Id, jobPath, StateBadge, When } from "../../ui/basics";
import { Blockers, Loaded } from "../../ui/messages";
import { Panel } from "../../ui/page";
import { JobActions } from "../../actions/jobactions";
import { gpuMicros, gpuTypes, holdLeft, isLive, projectedCost } from "./math";

/** A job beside its list. */
export function JobPanel({ id }: { id: string }) {
  const query = useQuery(api.job(id));
  return (
    <Panel title={<Link to={jobPath(id)}>{visible(query.data?.spec.name) || visible(id)}</Link>}>
      <Loaded query={query}>{(job) => <><JobFacts job={job} /><JobActions job={job} /><Link className="link" to={jobPath(id)}>Open the whole page</Link></>}</Loaded>
    </Panel>
  );
}

export function JobFacts({ job }: { job: Job }) {
  const attempt = job.attempts.at(-1);
  return (
    <>
      <dl className="facts">
        <dt>State</dt><dd><StateBadge state={job.state} /></dd>
        <dt>Id</dt><dd><Id id={job.id} /></dd>
        <dt>Account</dt><dd><AccountLink id={job.account} /></dd>
        <dt>GPUs</dt><dd>{formatAmount(gpuMicros(job))} of {visible(attempt?.gpu_type ?? gpuTypes(job))}{attempt ? ` on ${visible(attempt.nodes.join(", "))}` : ""}</dd>
        <dt>Cost so far</dt><dd><Amount value={job.charged} /> credits</dd>
        {isLive(job) ? <><dt>At most</dt><dd><Amount value={projectedCost(job)} /> credits</dd><dt>Hold left</dt><dd><Amount value={holdLeft(job)} /> credits</dd></> : null}
        <dt>Returned</dt><dd><Amount value={job.returned} /> credits</dd>
        <dt>Submitted</dt><dd><When at={job.created_at} /></dd>
        {job.ended_at ? <><dt>Ended</dt><dd><When at={job.ended_at} /></dd></> : null}
        {job.position ? <><dt>Place in the queue</dt><dd>{job.position}</dd></> : null}
        {job.estimated_start_at ? <><dt>Estimated start</dt><dd><When at={job.estimated_start_at} /></dd></> : null}
      </dl>
      {job.blockers?.length ? <><h3>Why it waits</h3><Blockers blockers={job.blockers} /></> : null}
    </>
  );
}
