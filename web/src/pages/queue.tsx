import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api } from "../api/queries";
import type { Queue, QueueEntry, Region } from "../api/types";
import { count, formatDuration, micros, millis, sum, visible, words } from "../format";
import { AccountLink, Badge, JobLink, Stat, Stats, When } from "../ui/basics";
import { useNow } from "../ui/context";
import { afterFirst, Empty, Loaded } from "../ui/messages";
import { Choice, Page, Section } from "../ui/page";
import { usePageSearch, useRegion } from "../ui/search";
import { DataTable } from "../ui/table";
import { JobPanel } from "./jobs/panel";
import { ShareTable } from "./share";
import { largestGang } from "./clustermath";

export function RegionChoice() {
  const regions = useQuery(api.regions());
  const region = useRegion();
  const [, change] = usePageSearch();
  const ids = (regions.data ?? []).map(({ id }) => id).sort();
  if (ids.length < 2) return null;
  if (ids.length > 6) return <select aria-label="Region" value={region} onChange={(event) => change({ region: event.target.value })}>{ids.map((id) => <option key={id}>{visible(id)}</option>)}</select>;
  return <Choice label="Region" value={region} choices={ids.map((id) => [id, visible(id)] as const)} onChange={(id) => change({ region: id, open: undefined })} />;
}

export function median(values: number[]): number | undefined {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor((sorted.length - 1) / 2)] : undefined;
}

export function QueuePage() {
  const region = useRegion();
  const [search, change] = usePageSearch();
  const queue = useQuery(api.queue(region));
  const regions = useQuery(api.regions());
  const here = regions.data?.find(({ id }) => id === region);
  return (
    <Page title="Queue" about="Waiting jobs in the order in which they are considered, and everything that blocks each." actions={<RegionChoice />} panel={search.open ? <JobPanel id={search.open} /> : undefined}>
      <Loaded query={afterFirst(regions, queue)} rows={8}>
        {(data) => (
          <>
            <QueueStats queue={data} region={here} />
            <Section title="Order">
              <QueueTable rows={data.data} open={search.open} onOpen={(entry) => change({ open: entry.job })} />
              {data.has_more ? <p className="muted small">The first {data.data.length} are shown. All: <code>bursar ls --state queued</code></p> : null}
            </Section>
            <Section title="Fair share" unit="part of the region, in percent"><ShareTable shares={data.shares} /></Section>
          </>
        )}
      </Loaded>
    </Page>
  );
}

function QueueStats({ queue, region }: { queue: Queue; region: Region | undefined }) {
  const now = useNow();
  const waits = queue.data.map((entry) => now - (millis(entry.created_at) ?? now));
  const middle = median(waits);
  const map = useQuery(api.map(queue.region));
  const gang = map.data && largestGang(map.data);
  return (
    <Stats label="Queue">
      <Stat label="Waiting" tone="violet" to="/jobs" search={{ state: "queued" }}>{region?.waiting_jobs ?? queue.data.length}</Stat>
      <Stat label="Running" tone="blue" to="/jobs" search={{ state: "running" }}>{region?.running_jobs ?? "–"}</Stat>
      <Stat label="Median wait" note={queue.has_more ? `of the first ${queue.data.length} that wait` : "of those waiting now"}>{middle === undefined ? "–" : formatDuration(middle)}</Stat>
      <Stat label="Largest gang that fits now" to="/cluster" note={gang ? `${visible(gang.type)}, ${gang.nodes} × ${gang.gpus_per_node}` : "no free GPU"}>{gang ? count(gang.gpus, "GPU") : "0"}</Stat>
      <Stat label="Free" tone="green" to="/cluster" note={(region?.gpus ?? []).map((type) => `${visible(type.type)} ${type.free}`).join(", ")}>{region ? words(String(sum(region.gpus.map((type) => micros(type.free))) / 1_000_000n)) : "–"}</Stat>
    </Stats>
  );
}

/** Names of waiting jobs, by id. */
function useJobNames(isWanted: boolean): Map<string, string> {
  const { data } = useQuery({ ...api.jobsNow({ state: "queued" }), enabled: isWanted });
  return useMemo(() => new Map((data?.data ?? []).flatMap((job) => (job.spec.name ? [[job.id, job.spec.name] as const] : []))), [data]);
}

export function QueueTable({ rows, open, onOpen }: { rows: QueueEntry[]; open: string | undefined; onOpen: (entry: QueueEntry) => void }) {
  const names = useJobNames(rows.length > 0);
  return (
    <DataTable label="Waiting jobs" rows={rows} rowId={(entry) => entry.job} open={open} onOpen={onOpen} empty={<Empty>No job waits in this region.</Empty>} columns={[
      { id: "position", header: "#", num: true, value: (entry) => entry.position, cell: (entry) => entry.position },
      { id: "job", header: "Job", cell: (entry) => <JobLink id={entry.job} name={names.get(entry.job)} /> },
      { id: "account", header: "Account", value: (entry) => entry.account, cell: (entry) => <AccountLink id={entry.account} /> },
      { id: "class", header: "Class", value: (entry) => entry.class, cell: (entry) => visible(entry.class) },
      { id: "wait", header: "Submitted", num: true, value: (entry) => millis(entry.created_at), cell: (entry) => <When at={entry.created_at} /> },
      { id: "start", header: "Estimated start", num: true, value: (entry) => millis(entry.estimated_start_at), cell: (entry) => <When at={entry.estimated_start_at} /> },
      { id: "why", header: "Reasons", cell: (entry) => <span className="row">{[...new Set(entry.blockers.map(({ type }) => type))].map((type) => <Badge key={type} tone="violet" title={entry.blockers.filter((one) => one.type === type).map((one) => visible(one.detail)).join("\n")}>{words(type)}</Badge>)}</span> },
    ]} />
  );
}
