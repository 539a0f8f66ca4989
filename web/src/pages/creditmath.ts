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
