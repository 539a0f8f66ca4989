import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useMemo } from "react";
import { JobActions } from "../../actions/jobactions";
import { send, path } from "../../api/client";
import { api } from "../../api/queries";
import type { Job, TimelineEntry } from "../../api/types";
import { ChartWithTwin } from "../../charts/twin";
import { formatAmount, formatDuration, formatGpuHours, formatSeconds, millis, visible, words } from "../../format";
import { AccountLink, Amount, Badge, Copy, Id, Stat, StateBadge, Stats, stateTone, When } from "../../ui/basics";
import { useNow } from "../../ui/context";
import { Blockers, Empty, FirstOnly, Loaded } from "../../ui/messages";
import { Page, Section } from "../../ui/page";
import { usePageSearch } from "../../ui/search";
import { amountColumn, DataTable } from "../../ui/table";
import { jobCommand, jobCurl } from "./command";
import { gpuMicros, gpuTypes, holdLeft, isLive, projectedCost, ratePerHour } from "./math";
import { Lane } from "./lane";
import { costLine, TimelineList } from "./timeline";

const TABS = ["why", "timeline", "logs", "ledger", "spec", "cli"] as const;
const TITLES: Record<(typeof TABS)[number], string> = { why: "Why", timeline: "Timeline", logs: "Logs", ledger: "Ledger", spec: "Spec", cli: "Command" };

export function JobPage() {
  const { job: id } = useParams({ strict: false }) as { job: string };
  const job = useQuery(api.job(id));
  const timeline = useQuery(api.timeline(id));
  return (
    <Page
      title={job.data?.spec.name ?? id}
      about={job.data ? <><Id id={id} /> · <AccountLink id={job.data.account} /></> : visible(id)}
      actions={job.data ? <JobActions job={job.data} /> : undefined}
    >
      <Loaded query={job} rows={6}>
        {(data) => (
          <>
            <TopLine job={data} />
            <Section title="Life"><Loaded query={timeline}>{(entries) => <><Lane job={data} timeline={entries} /><FirstOnly of={[api.timeline(id)]} what="entries of the timeline" /></>}</Loaded></Section>
            <CostChart timeline={timeline.data ?? []} />
            <JobTabs job={data} timeline={timeline.data} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function TopLine({ job }: { job: Job }) {
  const now = useNow();
  const attempt = job.attempts.at(-1);
  const started = millis(attempt?.started_at);
  const live = isLive(job);
  const rate = ratePerHour(job);
  return (
    <Stats label="Summary">
      <Stat label="State" tone={stateTone(job.state)} note={attempt?.end_reason && !live ? words(attempt.end_reason) : job.region ? `in ${visible(job.region)}` : undefined}><StateBadge state={job.state} /></Stat>
      <Stat label="Cost so far" tone="blue" note={rate > 0n ? <><Amount value={rate} /> per hour</> : undefined}><Amount value={job.charged} /></Stat>
      {live ? <Stat label="Projected, at most" note={`time limit ${formatSeconds(job.spec.max_runtime_seconds)}`}><Amount value={projectedCost(job)} /></Stat> : <Stat label="Returned" tone="green"><Amount value={job.returned} /></Stat>}
      {live ? <Stat label="Hold left" tone="violet" note={job.hold ? <>of <Amount value={job.hold.amount} /></> : undefined}><Amount value={holdLeft(job)} /></Stat> : null}
      <Stat label="GPUs" note={visible(attempt?.gpu_type ?? gpuTypes(job))}>{formatAmount(gpuMicros(job))}</Stat>
      {started !== undefined ? <Stat label="Ran" note={attempt ? visible(attempt.nodes.join(", ")) : undefined}>{formatDuration((millis(attempt?.ended_at) ?? now) - started)}</Stat> : <Stat label="Waits since"><When at={job.created_at} /></Stat>}
    </Stats>
  );
}

function CostChart({ timeline }: { timeline: TimelineEntry[] }) {
  const line = useMemo(() => costLine(timeline), [timeline]);
  const series = useMemo(() => [{ name: "Cost", tone: "blue" as const, values: line.total }], [line]);
  return line.at.length < 3 ? null : <ChartWithTwin title="Cost" unit="credits" at={line.at} series={series} height={150} file="cost.csv" />;
}

function JobTabs({ job, timeline }: { job: Job; timeline: TimelineEntry[] | undefined }) {
  const [search, change] = usePageSearch();
  const fallback = job.state === "queued" ? "why" : "timeline";
  const tab = TABS.find((one) => one === search.tab) ?? fallback;
  return (
    <section className="section">
      <div className="tabs" role="tablist" aria-label="Details">
        {TABS.map((one) => <button key={one} type="button" role="tab" id={`tab-${one}`} aria-selected={one === tab} aria-controls="tab-panel" onClick={() => change({ tab: one }, true)}>{TITLES[one]}</button>)}
      </div>
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab}`} className="section">
        {tab === "why" ? <WhyTab job={job} /> : null}
        {tab === "timeline" ? (timeline ? <TimelineList entries={timeline} /> : <p className="muted">The timeline is not known yet.</p>) : null}
        {tab === "logs" ? <LogsTab job={job} /> : null}
        {tab === "ledger" ? <LedgerTab job={job} /> : null}
        {tab === "spec" ? <Code text={JSON.stringify(job.spec, null, 2)} label="Spec" /> : null}
        {tab === "cli" ? <><h3>Submit the same again</h3><Code text={jobCommand(job)} label="Command" /><h3>With the API</h3><Code text={jobCurl(job, location.origin)} label="Request" /></> : null}
      </div>
    </section>
  );
}

function WhyTab({ job }: { job: Job }) {
  const why = useQuery(api.why(job.id));
  return (
    <Loaded query={why}>
      {(answer) => (
        <>
          {answer.position ? <p>Place {answer.position} in the queue{answer.estimated_start_at ? <>, estimated start <When at={answer.estimated_start_at} /></> : null}.</p> : null}
          {answer.blockers.length ? <Blockers blockers={answer.blockers} /> : <Empty>Nothing blocks it: it is {words(job.state)}.</Empty>}
        </>
      )}
    </Loaded>
  );
}

/** The last part of long output. */
const MAX_LOG = 200_000;

function LogsTab({ job }: { job: Job }) {
  const logs = useQuery({ queryKey: ["jobs", "logs", job.id], queryFn: async ({ signal }) => (await send<string>("GET", path`/v1/jobs/${job.id}/logs`, { text: true, signal })).data });
  return <Loaded query={logs}>{(text) => text ? <pre className="code wrap" tabIndex={0}>{text.length > MAX_LOG ? `… ${text.length - MAX_LOG} earlier characters: bursar logs ${job.id}\n` : ""}{visible(text.slice(-MAX_LOG))}</pre> : <Empty>No output yet.<pre>bursar logs --follow {job.id}</pre></Empty>}</Loaded>;
}

function LedgerTab({ job }: { job: Job }) {
  const rows = job.attempts;
  return (
    <DataTable label="Attempts" rows={rows} rowId={(attempt) => attempt.id} empty={<Empty>No attempt has started. {job.hold ? <>Held: <Amount value={job.hold.amount} /> credits by {visible(job.hold.id)}.</> : null}</Empty>} columns={[
      { id: "id", header: "Attempt", cell: (attempt) => <Id id={attempt.id} /> },
      { id: "end", header: "End", cell: (attempt) => attempt.end_reason ? <Badge tone={attempt.end_reason === "succeeded" ? "green" : ["failed", "lost", "timed_out", "out_of_credits"].includes(attempt.end_reason) ? "red" : "orange"}>{words(attempt.end_reason)}</Badge> : <Badge tone="blue" mark="●">running</Badge> },
      { id: "node", header: "Nodes", cell: (attempt) => visible(attempt.nodes.join(", ")) },
      { id: "start", header: "Started", cell: (attempt) => <When at={attempt.started_at} exact /> },
      { id: "use", header: "Used", num: true, cell: (attempt) => formatGpuHours(attempt.gpu_ms) },
      amountColumn("price", "Price", rows, (attempt) => attempt.per_gpu_hour, { unit: "per GPU h" }),
      amountColumn("charged", "Charged", rows, (attempt) => attempt.charged, { unit: "credits" }),
      { id: "hold", header: "Hold", cell: (attempt) => <Id id={attempt.hold} /> },
    ]} />
  );
}

export function Code({ text, label }: { text: string; label: string }) {
  return <div className="section"><pre className="code" tabIndex={0}>{visible(text)}</pre><div className="row"><Copy text={text} label={`Copy: ${label}`} /><span className="small muted">Copy</span></div></div>;
}
