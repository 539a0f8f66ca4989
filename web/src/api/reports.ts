import type { components } from "./schema";

/** Answers for the charts: spend, effective balance, map, search. */
type Schemas = components["schemas"];

export type Spend = Schemas["Spend"];
export type SpendSeries = Schemas["SpendSeries"];
export type Effective = Schemas["Effective"];
export type Series = Schemas["AccountSeries"];
export type RegionSeries = Schemas["RegionSeries"];

export interface MapUse {
  /** `other` for jobs that the caller cannot see. */
  job: string;
  account: string;
  share: string;
  /** False while the GPU is kept for a job that does not use it yet or any more. */
  running: boolean;
}

export interface MapGpu {
  uuid: string;
  type: string;
  used: MapUse[];
}

export interface MapNode {
  id: string;
  rack?: string | null;
  state: string;
  gpus: MapGpu[];
}

export interface RegionMap {
  nodes: MapNode[];
  has_more: boolean;
  largest_gang: { type: string; gpus: number; nodes: number; gpus_per_node: number }[];
}

export interface Found {
  kind: "account" | "job" | "hold" | "grant" | "charge" | "key" | "request";
  id: string;
  account?: string | null;
  name?: string | null;
  exact: boolean;
  at?: string | null;
  /** Of a request: its record in the journal. */
  position?: number | null;
}

export interface SearchResult {
  data: Found[];
  truncated: boolean;
}

/** Whether a server answers requests; `machines` by name with their states. */
export interface Readiness {
  ready: boolean;
  machines: Record<string, string>;
  broken_laws: number;
  set_aside: Record<string, number>;
}

/** The members of a cluster, as servers that share a store answer. */
export interface Member {
  id: string;
  url: string;
  state: string;
  build: string;
  seen_at: string;
}

export interface Machine {
  id: string;
  owner: string | null;
  successor: string | null;
  epoch: number;
  position: number;
  follower_lag_ms: number | null;
}

export interface Cluster {
  version: string | number;
  members: Member[];
  machines: Machine[];
}
