import { hashKey, infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { isPaused } from "../live/pause";
import type { Topic } from "../live/topics";
import { path, ProblemError, read, type Query } from "./client";
import type { Cluster, Effective, Readiness, RegionMap, RegionSeries, SearchResult, Series, Spend } from "./reports";
import type {
  Account, AuditRecord, Balance, Budget, BudgetTree, Charge, Checkpoint, Class, Entry, Forecast, Grant, Hold, Job, JobState, Key,
  MachineNode, Page, Price, Queue, Region, Statement, TimelineEntry, Top, Why,
} from "./types";

/** Lists are read in pages of this size; the server allows no more. */
export const PAGE = 100;
/** Lists that are read as a whole end here. */
export const MAX_ROWS = 2_000;
/** Nodes on a map. */
export const MAX_MAP_NODES = 1_000;
/** What the event feed does not report (nodes, members) is read again this often. */
const SLOW_POLL = 30_000;
/** Nothing is read again while the page is paused. */
const poll = () => (isPaused() ? false : SLOW_POLL);

/** Keys of lists that end at `MAX_ROWS` although there are more. */
const cut = new Set<string>();

/** Whether a list that is read as a whole has more rows than are shown. */
export const isCut = (list: { queryKey: readonly unknown[] }): boolean => cut.has(hashKey(list.queryKey));

function one<T>(topic: Topic, to: string, query: Query = {}, more: { poll?: boolean; enabled?: boolean } = {}) {
  return queryOptions({
    queryKey: [topic, to, query] as const,
    queryFn: ({ signal }) => read<T>(to, query, signal),
    placeholderData: keepPreviousData,
    ...(more.poll ? { refetchInterval: poll } : {}),
    ...(more.enabled === undefined ? {} : { enabled: more.enabled }),
  });
}

/** Every row of a list, up to `MAX_ROWS`, and whether there are more. */
export async function readAll<T>(to: string, query: Query = {}, signal?: AbortSignal): Promise<{ rows: T[]; isCut: boolean }> {
  const rows: T[] = [];
  let cursor: string | null | undefined;
  do {
    const page: Page<T> = await read<Page<T>>(to, { ...query, limit: PAGE, cursor }, signal);
    rows.push(...page.data);
    cursor = page.has_more ? page.next_cursor : null;
  } while (cursor && rows.length < MAX_ROWS);
  return { rows, isCut: cursor !== null && cursor !== undefined };
}

function all<T>(topic: Topic, to: string, query: Query = {}, more: { poll?: boolean; enabled?: boolean } = {}) {
  return queryOptions({
    queryKey: [topic, to, query, "all"] as const,
    queryFn: async ({ signal, queryKey }) => {
      const found = await readAll<T>(to, query, signal);
      if (found.isCut) cut.add(hashKey(queryKey));
      else cut.delete(hashKey(queryKey));
      return found.rows;
    },
    placeholderData: keepPreviousData,
    ...(more.poll ? { refetchInterval: poll } : {}),
    ...(more.enabled === undefined ? {} : { enabled: more.enabled }),
  });
}

function pages<T>(topic: Topic | "joblist", to: string, query: Query = {}) {
  return infiniteQueryOptions({
    queryKey: [topic, to, query, "pages"] as const,
    queryFn: ({ signal, pageParam }) => read<Page<T>>(to, { ...query, limit: PAGE, cursor: pageParam }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (last: Page<T>) => (last.has_more ? (last.next_cursor ?? null) : null),
  });
}

export interface JobFilter {
  account?: string | undefined;
  state?: JobState | undefined;
  label?: string | undefined;
}

/** A server that is not ready says why, with 503. */
async function readReadiness(signal: AbortSignal): Promise<Readiness> {
  try {
    return await read<Readiness>("/readyz", {}, signal);
  } catch (error) {
    if (error instanceof ProblemError && "machines" in error.problem) return error.problem as unknown as Readiness;
    throw error;
  }
}

export const api = {
  accounts: () => all<Account>("accounts", "/v1/accounts"),
  account: (id: string) => one<Account>("accounts", path`/v1/accounts/${id}`),
  balance: (id: string, query: Query = {}) => one<Balance>("balance", path`/v1/accounts/${id}/balance`, query),
  effective: (id: string) => one<Effective>("balance", path`/v1/accounts/${id}/effective`),
  forecast: (id: string, query: Query = {}) => one<Forecast>("spend", path`/v1/accounts/${id}/forecast`, query),
  statement: (id: string, from: string, to: string) =>
    one<Statement>("spend", path`/v1/accounts/${id}/statement`, { from, to }),
  spend: (id: string, query: Query) => one<Spend>("spend", path`/v1/accounts/${id}/spend`, query),
  series: (id: string, query: Query) => one<Series>("spend", path`/v1/accounts/${id}/series`, query),
  entries: (id: string) => pages<Entry>("spend", path`/v1/accounts/${id}/entries`),
  /** Movements of a grant's credits, of the account that has it. */
  grantEntries: (account: string, grant: string) => pages<Entry>("spend", path`/v1/accounts/${account}/entries`, { grant }),
  /** Movements of credits that an account held or spent. */
  spentEntries: (account: string, query: Query) => pages<Entry>("spend", path`/v1/accounts/${account}/entries`, { view: "spent", ...query }),
  budgets: (id: string) => all<Budget>("budgets", path`/v1/accounts/${id}/budgets`),
  budgetTree: (id: string) => one<BudgetTree>("budgets", path`/v1/accounts/${id}/budget-tree`),
  grants: (account: string) => all<Grant>("grants", "/v1/grants", { account }),
  grant: (id: string) => one<Grant>("grants", path`/v1/grants/${id}`),
  charge: (id: string) => one<Charge>("balance", path`/v1/charges/${id}`),
  hold: (id: string) => one<Hold>("balance", path`/v1/holds/${id}`),
  top: (query: Query) => one<Top>("spend", "/v1/top", query),
  jobs: (filter: JobFilter) => pages<Job>("joblist", "/v1/jobs", { ...filter }),
  jobsNow: (filter: JobFilter) => one<Page<Job>>("jobs", "/v1/jobs", { ...filter, limit: PAGE }),
  job: (id: string) => one<Job>("jobs", path`/v1/jobs/${id}`),
  why: (id: string) => one<Why>("jobs", path`/v1/jobs/${id}/why`),
  timeline: (id: string) => all<TimelineEntry>("jobs", path`/v1/jobs/${id}/timeline`),
  regions: () => all<Region>("regions", "/v1/regions", {}, { poll: true }),
  queue: (region: string) => one<Queue>("queue", path`/v1/regions/${region}/queue`, { limit: PAGE }, { poll: true, enabled: region !== "" }),
  map: (region: string) => one<RegionMap>("nodes", path`/v1/regions/${region}/map`, { limit: MAX_MAP_NODES }, { poll: true, enabled: region !== "" }),
  regionSeries: (region: string, query: Query) => one<RegionSeries>("regions", path`/v1/regions/${region}/series`, query),
  nodes: () => all<MachineNode>("nodes", "/v1/nodes", {}, { poll: true }),
  classes: () => all<Class>("prices", "/v1/classes"),
  prices: (at?: string) => all<Price>("prices", "/v1/prices", { at }),
  keys: () => all<Key>("keys", "/v1/keys"),
  audit: (query: Query) => pages<AuditRecord>("audit", "/v1/audit", query),
  checkpoint: (machine?: string) => one<Checkpoint>("audit", "/v1/audit/checkpoint", { machine }),
  readiness: () => queryOptions({ queryKey: ["cluster", "/readyz"] as const, queryFn: ({ signal }) => readReadiness(signal), refetchInterval: poll }),
  cluster: () => one<Cluster>("cluster", "/v1/cluster", {}, { poll: true }),
  search: (q: string) => one<SearchResult>("jobs", "/v1/search", { q: q.slice(0, 128), limit: 50 }, { enabled: q !== "" }),
};

/** A refusal is not repeated; a server that is away is asked again. */
export function shouldRetry(failures: number, error: Error): boolean {
  if (error instanceof ProblemError) return error.problem.retryable && error.problem.status >= 500 && failures < 2;
  return failures < 2;
}
