import { createRootRoute, createRoute, createRouter, Link, type RouteComponent } from "@tanstack/react-router";
import { ErrorPage } from "./ui/errorpage";
import { parseSearch, stringifySearch } from "./ui/search";
import { Shell } from "./ui/shell";
import { AccountsPage } from "./pages/accounts";
import { AuditPage } from "./pages/audit";
import { BudgetsPage } from "./pages/budgets";
import { ClusterPage } from "./pages/cluster";
import { CreditsPage } from "./pages/credits";
import { HomePage } from "./pages/home/index";
import { JobPage } from "./pages/jobs/job";
import { JobsPage } from "./pages/jobs/list";
import { KeysPage } from "./pages/keys";
import { MembersPage } from "./pages/members";
import { PricesPage } from "./pages/prices";
import { QueuePage } from "./pages/queue";
import { SettingsPage } from "./pages/settings";
import { SharePage } from "./pages/share";
import { SpendPage } from "./pages/spend";
import { SupportPage } from "./pages/support/index";

/** Addresses of pages. A page is one entry here and one in the menu (ui/menu.ts). */
const PAGES: [string, RouteComponent][] = [
  ["/", HomePage],
  ["/credits", CreditsPage],
  ["/spend", SpendPage],
  ["/budgets", BudgetsPage],
  ["/jobs", JobsPage],
  ["/jobs/$job", JobPage],
  ["/queue", QueuePage],
  ["/share", SharePage],
  ["/cluster", ClusterPage],
  ["/audit", AuditPage],
  ["/support", SupportPage],
  ["/prices", PricesPage],
  ["/accounts", AccountsPage],
  ["/keys", KeysPage],
  ["/members", MembersPage],
  ["/settings", SettingsPage],
];

const NotFound = () => (
  <div className="page"><h1>No such page</h1><p className="muted">The address names no page of the dashboard. <Link className="link" to="/">Open Home</Link></p></div>
);

export function makeRouter() {
  const root = createRootRoute({ component: Shell, notFoundComponent: NotFound, errorComponent: ErrorPage });
  const routes = PAGES.map(([path, component]) => createRoute({ getParentRoute: () => root, path, component }));
  return createRouter({
    routeTree: root.addChildren(routes),
    parseSearch,
    stringifySearch,
    defaultErrorComponent: ErrorPage,
    scrollRestoration: false,
  });
}
