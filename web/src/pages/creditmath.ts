import type { Grant, Statement } from "../api/types";
import { micros, sum, title, type Micros } from "../format";
import type { WaterfallStep } from "../charts/bars";
import type { Tone } from "../ui/basics";

/** An account and everything above it: `a:b` → `a`, `a:b`. */
export function ancestors(account: string): string[] {
  const parts = account.split(":");
  return parts.map((_, i) => parts.slice(0, i + 1).join(":"));
}

/** An account and those above it that a scope contains. An account outside it stays, so that the server answers. */
export function visibleAncestors(account: string, scope: string): string[] {
  if (!account) return [];
  return ancestors(account).filter((path) => path === account || scope === "*" || path === scope || path.startsWith(`${scope}:`));
}

export interface GrantTotals {
  amount: Micros;
  spent: Micros;
  held: Micros;
  expired: Micros;
  revoked: Micros;
  moved: Micros;
  available: Micros;
}

export function grantTotals(grants: Grant[]): GrantTotals {
  const total = (name: keyof GrantTotals) => sum(grants.map((grant) => micros(grant[name])));
  return {
    amount: total("amount"), spent: total("spent"), held: total("held"), expired: total("expired"),
    revoked: total("revoked"), moved: total("moved"), available: total("available"),
  };
}

const TONES: Record<string, Tone> = {
  granted: "green", held: "violet", returned: "green", refunded: "green", reissued: "green", captured: "blue", spent: "blue", charged: "blue", expired: "red", revoked: "slate", moved: "slate",
};

/** Opening, each kind of movement that changed the balance, closing. */
export function waterfallOf(statement: Statement): WaterfallStep[] {
  return [
    { name: "Opening", amount: micros(statement.opening), tone: "slate", total: true },
    // What came in before what went out, so that no step is below zero.
    ...statement.movements.filter((line) => micros(line.amount) !== 0n).sort((a, b) => Number(micros(a.amount) < 0n) - Number(micros(b.amount) < 0n))
      .map((line): WaterfallStep => ({ name: title(line.type), amount: micros(line.amount), tone: TONES[line.type] ?? "slate" })),
    { name: "Closing", amount: micros(statement.closing), tone: "green", total: true },
  ];
}

/** An account's own credits in a month: opening + granted = spent + expired + revoked or moved + held + left. */
export interface MonthRow {
  month: string;
  /** Held and left before the month. */
  opening: Micros;
  granted: Micros;
  spent: Micros;
  expired: Micros;
  left_other: Micros;
  held: Micros;
  left: Micros;
}

const movement = (statement: Statement, types: string[]): Micros => sum(statement.movements.filter((line) => types.includes(line.type)).map((line) => micros(line.amount)));

/**
 * A month from its statement, and from what was held, spent and expired in all before it and at its
 * end. The two sources are independent, so `difference` is a check.
 */
export function monthRow(month: string, statement: Statement, [held = [], spent = [], expired = []]: Micros[][]): MonthRow {
  const change = (ends: Micros[]) => (ends.at(-1) ?? 0n) - (ends[0] ?? 0n);
  return {
    month,
    opening: micros(statement.opening) + (held[0] ?? 0n),
    granted: movement(statement, ["granted", "reissued", "received"]),
    spent: change(spent),
    expired: change(expired),
    left_other: -movement(statement, ["revoked", "moved"]),
    held: held.at(-1) ?? 0n,
    left: micros(statement.closing),
  };
}

/** What is missing on the right side; zero if the month adds up. */
export const difference = (row: MonthRow): Micros => row.opening + row.granted - row.spent - row.expired - row.left_other - row.held - row.left;
