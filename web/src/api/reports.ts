/** Answers for the charts: spend, series, effective balance, map. */

export interface Point {
  at: string;
  amount: string;
}

export interface SpendSeries {
  /** `null` for spending that belongs to no group. */
  key: string | null;
  total: string;
  points: Point[];
}

export interface Spend {
  interval: "hour" | "day" | "week" | "month";
  series: SpendSeries[];
  other: string;
  other_points: Point[];
  total: string;
  points: Point[];
  as_of: string;
}

export interface Series {
  points: Point[];
  as_of?: string;
}

export interface EffectiveBudget {
  account: string;
  name: string;
  remaining: string;
  binds: boolean;
}

export interface FreeCredits {
  account: string;
  available: string;
  by_kind: Record<string, string>;
  expiring: { expires_at: string; amount: string; kind: string }[];
}

export interface Effective {
  spendable: string;
  largest_hold: string;
  own: FreeCredits;
  inherited: FreeCredits[];
  held_by_me: string;
  spent_by_me: string;
  budgets: EffectiveBudget[];
}

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
