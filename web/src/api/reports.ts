import type { components } from "./schema";

/** Answers for the charts: spend, effective balance, map, search. */
type Schemas = components["schemas"];

export type Spend = Schemas["Spend"];
export type SpendSeries = Schemas["SpendSeries"];
export type Effective = Schemas["Effective"];
export type Series = Schemas["AccountSeries"];
export type RegionSeries = Schemas["RegionSeries"];

export type RegionMap = Schemas["RegionMap"];
export type MapNode = Schemas["MapNode"];
export type MapGpu = Schemas["MapGpu"];
export type SearchResult = Schemas["SearchResult"];
export type Found = Schemas["Hit"];

/** Whether a server answers requests; `machines` by name with their states. A member that stands by says less. */
export interface Readiness {
  ready: boolean;
  machines: Record<string, string>;
  broken_laws?: number;
  set_aside?: Record<string, number>;
}

/** The members of a cluster, as servers that share a store answer. */
export type Cluster = Schemas["Cluster"];
export type Machine = Schemas["ClusterMachine"];
