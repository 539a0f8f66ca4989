import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api } from "../../api/queries";
import type { Blocker, Job } from "../../api/types";
import { formatAmount, millis, visible, words } from "../../format";
import { AccountLink, JobLink, StateBadge, When } from "../../ui/basics";
import { amountColumn, type TableColumn } from "../../ui/table";
import { gpuMicros, gpuTypes, isLive, projectedCost } from "./math";

/** Regions whose queues are read for the reasons of waiting jobs. */
const MAX_REGIONS = 6;

/** Why jobs wait, by job, from the queues of the regions. */
export function useReasons(isWanted: boolean): Map<string, Blocker[]> {
  const regions = useQuery({ ...api.regions(), enabled: isWanted });
  const ids = (regions.data ?? []).filter((region) => region.waiting_jobs > 0).map(({ id }) => id).slice(0, MAX_REGIONS);
  const queues = useQueries({ queries: isWanted ? ids.map((id) => api.queue(id)) : [] });
  const stamp = queues.map((queue) => queue.dataUpdatedAt).join();
  return useMemo(() => {
    const reasons = new Map<string, Blocker[]>();
    for (const entry of queues.flatMap((queue) => queue.data?.data ?? [])) reasons.set(entry.job, [...(reasons.get(entry.job) ?? []), ...entry.blockers]);
    return reasons;
  }, [stamp]);
}

/** The first reason why a job waits, and how many more there are. */
export function Reason({ job, reasons, before = "" }: { job: Job; reasons?: Map<string, Blocker[]> | undefined; before?: string }) {
  const blockers = job.blockers?.length ? job.blockers : job.state === "queued" ? (reasons?.get(job.id) ?? []) : [];
  const [first] = blockers;
  const kinds = new Set(blockers.map(({ type }) => type)).size;
  if (!first) return null;
  return <span title={blockers.map((one) => visible(one.detail)).join("\n")}>{before}{words(first.type)}{kinds > 1 ? ` +${kinds - 1}` : ""}</span>;
}

/** Columns of a list of jobs. */
export function jobColumns(jobs: readonly Job[], reasons?: Map<string, Blocker[]>): TableColumn<Job>[] {
  return [
    { id: "state", header: "State", value: (job) => job.state, cell: (job) => <StateBadge state={job.state} /> },
    { id: "name", header: "Job", value: (job) => job.spec.name ?? job.id, cell: (job) => <JobLink id={job.id} name={job.spec.name} /> },
    { id: "account", header: "Account", value: (job) => job.account, cell: (job) => <AccountLink id={job.account} /> },
    { id: "gpus", header: "GPUs", num: true, value: gpuMicros, cell: (job) => formatAmount(gpuMicros(job)) },
    { id: "types", header: "Type", cell: (job) => visible(job.attempts.at(-1)?.gpu_type ?? gpuTypes(job)), phone: false },
    { id: "class", header: "Class", value: (job) => job.spec.class ?? "", cell: (job) => visible(job.spec.class), phone: false },
    amountColumn("cost", "Cost so far", jobs, (job) => job.charged, { unit: "credits" }),
    amountColumn("projected", "At most", jobs, (job) => (isLive(job) ? projectedCost(job) : null), { unit: "credits", phone: false }),
    { id: "why", header: "Waits for", cell: (job) => <Reason job={job} reasons={reasons} />, phone: false },
    { id: "created", header: "Submitted", num: true, value: (job) => millis(job.created_at), cell: (job) => <When at={job.created_at} /> },
  ];
}
