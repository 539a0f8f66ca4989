import type { components } from "./schema";

type Schemas = components["schemas"];

export type Account = Schemas["Account"];
export type Attempt = Schemas["Attempt"];
export type AuditRecord = Schemas["AuditRecord"];
export type Balance = Schemas["Balance"];
export type Blocker = Schemas["Blocker"];
export type Budget = Schemas["Budget"];
export type BudgetTree = Schemas["BudgetTree"];
export type Charge = Schemas["Charge"];
export type Checkpoint = Schemas["Checkpoint"];
export type Class = Schemas["Class"];
export type CreateKey = Schemas["CreateKey"];
export type CreateRefund = Schemas["CreateRefund"];
export type Entry = Schemas["Entry"];
export type FeedEvent = Schemas["FeedEvent"];
export type Forecast = Schemas["Forecast"];
export type Grant = Schemas["Grant"];
export type GrantKind = Schemas["GrantKind"];
export type Hold = Schemas["Hold"];
export type IssueGrant = Schemas["IssueGrant"];
export type Job = Schemas["Job"];
export type JobState = Schemas["JobState"];
export type Key = Schemas["Key"];
export type MachineNode = Schemas["Node"];
export type NodeState = Schemas["NodeState"];
export type Price = Schemas["Price"];
export type Problem = Schemas["Problem"];
export type Proof = Schemas["Proof"];
export type Queue = Schemas["Queue"];
export type QueueEntry = Schemas["QueueEntry"];
export type Quote = Schemas["Quote"];
export type Refund = Schemas["Refund"];
export type Region = Schemas["Region"];
export type Role = Schemas["Role"];
export type SetBudget = Schemas["SetBudget"];
export type ShareEntry = Schemas["ShareEntry"];
export type Statement = Schemas["Statement"];
export type SubmitJob = Schemas["SubmitJob"];
export type TimelineEntry = Schemas["TimelineEntry"];
export type Top = Schemas["Top"];
export type Why = Schemas["Why"];

/** A page of a list. */
export interface Page<T> {
  data: T[];
  has_more: boolean;
  next_cursor?: string | null;
  as_of?: string | null;
}
