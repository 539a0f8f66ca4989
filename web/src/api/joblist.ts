import type { InfiniteData, QueryClient } from "@tanstack/react-query";
import { path, read } from "./client";
import type { Job, Page } from "./types";

/** Jobs outside the newest page that are read one by one; more wait for the next change. */
const MAX_SINGLE_READS = 20;

export type JobPages = InfiniteData<Page<Job>, string | null>;

interface Filter {
  account?: string;
  state?: string;
}

/** Whether a changed job still belongs in a list. Labels cannot change. */
export function matches(job: Job, filter: Filter): boolean {
  if (filter.state && job.state !== filter.state) return false;
  return !filter.account || job.account === filter.account || job.account.startsWith(`${filter.account}:`);
}

/**
 * Puts changed jobs into the pages of a list without reading all pages again. `newest` is the
 * first page as it is now; `changed` are jobs read one by one.
 */
export function mergeJobs(pages: JobPages, newest: Page<Job>, changed: Job[], filter: Filter): JobPages {
  const fresh = new Map([...newest.data, ...changed].map((job) => [job.id, job]));
  const known = new Set(pages.pages.flatMap((page) => page.data.map((job) => job.id)));
  const added = newest.data.filter((job) => !known.has(job.id));
  const merged = pages.pages.map((page, index) => {
    const kept = page.data.map((job) => fresh.get(job.id) ?? job).filter((job) => matches(job, filter));
    return { ...page, data: index === 0 ? [...added, ...kept] : kept };
  });
  return { ...pages, pages: merged };
}

/** Refreshes every list of jobs on the page. A long list costs no more than a short one. */
export async function refreshJobLists(queries: QueryClient, changed: ReadonlySet<string>): Promise<void> {
  const lists = queries.getQueryCache().findAll({ queryKey: ["joblist"], type: "active" });
  await Promise.all(lists.map(async ({ queryKey }) => {
    const pages = queries.getQueryData<JobPages>(queryKey);
    if (!pages || pages.pages.length < 2) return queries.invalidateQueries({ queryKey });
    const filter = queryKey[2] as Filter;
    const newest = await read<Page<Job>>("/v1/jobs", { ...filter, limit: 100 });
    const listed = new Set(pages.pages.flatMap((page) => page.data.map((job) => job.id)));
    const newestIds = new Set(newest.data.map((job) => job.id));
    const single = [...changed].filter((id) => listed.has(id) && !newestIds.has(id)).slice(0, MAX_SINGLE_READS);
    const read1 = await Promise.all(single.map((id) => read<Job>(path`/v1/jobs/${id}`).catch(() => undefined)));
    const jobs = read1.filter((job) => job !== undefined);
    queries.setQueryData<JobPages>(queryKey, (now) => now && mergeJobs(now, newest, jobs, filter));
  }));
}
