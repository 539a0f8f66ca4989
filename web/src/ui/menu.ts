import { may, type Action, type Session } from "../api/session";

export interface MenuEntry {
  to: string;
  name: string;
  /** Pressed after `g`. */
  key?: string;
  /** Shown only to those who may do this. */
  needs?: Action;
}

export const MENU: [string, MenuEntry[]][] = [
  ["", [{ to: "/", name: "Home", key: "h" }]],
  ["Credits", [
    { to: "/credits", name: "Credits", key: "c" },
    { to: "/spend", name: "Spend", key: "s" },
    { to: "/budgets", name: "Budgets", key: "b" },
  ]],
  ["Work", [
    { to: "/jobs", name: "Jobs", key: "j" },
    { to: "/queue", name: "Queue", key: "q" },
    { to: "/share", name: "Fair share", key: "f" },
    { to: "/cluster", name: "Cluster", key: "n" },
  ]],
  ["Trust", [
    { to: "/audit", name: "Audit", key: "a", needs: "audit" },
    { to: "/support", name: "Support", key: "u" },
  ]],
  ["Admin", [
    { to: "/accounts", name: "Accounts" },
    { to: "/prices", name: "Prices", key: "p" },
    { to: "/keys", name: "Keys", key: "k", needs: "keys" },
    { to: "/members", name: "Cluster members", key: "m", needs: "cluster" },
    { to: "/settings", name: "Settings" },
  ]],
];

/** The menu of a caller. Pages outside it still answer, with the role that they need. */
export function menuFor(session: Session): [string, MenuEntry[]][] {
  return MENU.map(([title, entries]): [string, MenuEntry[]] => [title, entries.filter((entry) => !entry.needs || may(session, entry.needs))])
    .filter(([, entries]) => entries.length > 0);
}
