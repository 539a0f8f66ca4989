import type { Grant, Statement } from "../api/types";
import { micros, sum, title, type Micros } from "../format";
import type { WaterfallStep } from "../charts/bars";
import type { Tone } from "../ui/basics";

/** An account and everything above it: `a:b` → `a`, `a:b`. */
export function ancestors(account: string): string[] {
  const parts = account.split(":");
  return parts.map((_, i) => parts.slice(0, i + 1).join(":"));
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
    ...statement.movements.filter((line) => micros(line.amount) !== 0n)
      .map((line): WaterfallStep => ({ name: title(line.type), amount: micros(line.amount), tone: TONES[line.type] ?? "slate" })),
    { name: "Closing", amount: micros(statement.closing), tone: "green", total: true },
  ];
}
