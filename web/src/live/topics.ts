import type { FeedEvent } from "../api/types";

/** A part of the data that pages show. Query keys begin with one. */
export type Topic =
  | "accounts" | "audit" | "balance" | "budgets" | "cluster" | "grants" | "jobs" | "keys"
  | "nodes" | "prices" | "queue" | "regions" | "shares" | "spend";

/** What an event of the feed makes outdated. */
export function topicsOf(type: string): Topic[] {
  if (type.startsWith("account_") || type.startsWith("quota_")) return ["accounts", "queue"];
  if (type.startsWith("budget_")) return ["budgets"];
  if (type === "credits_denied") return ["budgets"];
  if (type.startsWith("grant_") || type === "bucket_expired" || type === "expiry_reversed" || type === "credits_moved") {
    return ["balance", "grants"];
  }
  if (type === "hold_captured") return ["spend", "balance", "budgets"];
  if (type.startsWith("hold_") || type.startsWith("return_")) return ["balance", "grants", "budgets"];
  if (type === "charged" || type === "refunded" || type === "uncollected_collected") {
    return ["balance", "grants", "spend", "budgets", "jobs"];
  }
  if (type.startsWith("job_") || type.startsWith("attempt_") || type === "cancel_asked" || type === "dependencies_met") {
    return ["jobs", "queue", "regions", "nodes"];
  }
  if (type === "exhaustion_warned") return ["jobs"];
  return [];
}

/** Metering reports arrive every few seconds for each running job: they wait longer. */
const METERING = new Set(["hold_captured", "attempt_funded", "hold_extended"]);

export interface FeedState {
  status: "connecting" | "live" | "offline";
  paused: boolean;
  /** Id of the last event, to resume after it. */
  lastEventId: string | undefined;
  /** When the server was last heard, in local time. */
  heardAt: number | undefined;
  /** When pages were last refreshed from the server, in local time. */
  updatedAt: number | undefined;
  /** Changes that pages do not show yet. */
  waiting: number;
  soon: ReadonlySet<Topic>;
  later: ReadonlySet<Topic>;
  /** Ids of jobs that changed. */
  jobs: ReadonlySet<string>;
}

export const initialFeed: FeedState = {
  status: "connecting", paused: false, lastEventId: undefined, heardAt: undefined, updatedAt: undefined,
  waiting: 0, soon: new Set(), later: new Set(), jobs: new Set(),
};

export type FeedAction =
  | { type: "heard"; at: number }
  | { type: "event"; event: FeedEvent; at: number }
  | { type: "lost" }
  | { type: "pause" }
  | { type: "resume" }
  | { type: "flushed"; topics: readonly Topic[]; at: number };

/** More changed jobs than this are read again as a list. */
export const MAX_CHANGED_JOBS = 200;

export function reduceFeed(state: FeedState, action: FeedAction): FeedState {
  switch (action.type) {
    case "heard":
      return { ...state, status: "live", heardAt: action.at };
    case "lost":
      return { ...state, status: "offline" };
    case "pause":
      return { ...state, paused: true };
    case "resume":
      return { ...state, paused: false };
    case "event":
      return addEvent(state, action.event, action.at);
    case "flushed": {
      const without = (topics: ReadonlySet<Topic>) => new Set([...topics].filter((topic) => !action.topics.includes(topic)));
      const [soon, later] = [without(state.soon), without(state.later)];
      const jobs = action.topics.includes("jobs") ? new Set<string>() : state.jobs;
      const waiting = soon.size + later.size === 0 ? 0 : state.waiting;
      return { ...state, soon, later, jobs, waiting, updatedAt: action.at };
    }
  }
}

function addEvent(state: FeedState, event: FeedEvent, at: number): FeedState {
  const topics = topicsOf(event.type);
  const next = { ...state, status: "live" as const, heardAt: at, lastEventId: event.id };
  if (topics.length === 0) return next;
  next.waiting = state.waiting + 1;
  const job = jobOf(event);
  if (job && state.jobs.size < MAX_CHANGED_JOBS) next.jobs = new Set([...state.jobs, job]);
  if (METERING.has(event.type)) next.later = new Set([...state.later, ...topics]);
  else next.soon = new Set([...state.soon, ...topics]);
  return next;
}

function jobOf(event: FeedEvent): string | undefined {
  const data: unknown = event.data;
  if (typeof data !== "object" || data === null || !("job" in data)) return undefined;
  return typeof data.job === "string" ? data.job : undefined;
}
