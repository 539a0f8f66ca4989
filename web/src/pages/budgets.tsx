import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { BudgetDialog } from "../actions/money";
import { api } from "../api/queries";
import { may } from "../api/session";
import type { Effective } from "../api/reports";
import type { Budget } from "../api/types";
import { Bullet } from "../charts/bars";
import { formatShare, micros, perMille, visible, words } from "../format";
import { AccountLink, Amount, Badge, Stat, Stats, When } from "../ui/basics";
import { useSession } from "../ui/context";
import { Empty, ProblemNote } from "../ui/messages";
import { Page, Panel, Section } from "../ui/page";
import { AccountPage } from "../ui/noaccount";
import { useAccount, usePageSearch } from "../ui/search";
import { amountColumn, DataTable } from "../ui/table";
import { visibleAncestors } from "./creditmath";

/** What the budgets above the caller's scope tell of themselves. */
type Limit = Omit<Effective["budgets"][number], "binds">;

/** The hard budget with the least left: it blocks first. */
export function bindingBudget<B extends Limit>(budgets: B[]): B | undefined {
  const credits = budgets.filter((budget) => budget.mode === "hard" && budget.unit === "credits");
  return credits.reduce<B | undefined>((least, budget) => (!least || micros(budget.remaining) < micros(least.remaining) ? budget : least), undefined);
}

export const budgetId = (budget: Pick<Budget, "account" | "name">) => `${budget.account} ${budget.name}`;

/** Budgets of the account, of those above it in the scope, and of those below it. */
export function useBudgetTree(account: string): { above: Budget[]; all: Budget[] | undefined; error: Error | null; isCut: boolean } {
  const session = useSession();
  const up = visibleAncestors(account, session.scope).filter((path) => path !== account);
  const results = useQueries({ queries: up.map((path) => api.budgets(path)) });
  const tree = useQuery({ ...api.budgetTree(account), enabled: account !== "" });
  const higher = results.flatMap((result) => result.data ?? []);
  const own = tree.data?.levels.flatMap(({ budgets }) => budgets) ?? [];
  const isReady = tree.data !== undefined && results.every((result) => result.data);
  return {
    above: [...higher, ...own.filter((budget) => budget.account === account)],
    all: isReady ? [...higher, ...own] : undefined,
    error: tree.error ?? results.find((result) => result.error)?.error ?? null,
    isCut: tree.data?.has_more ?? false,
  };
}

export const BudgetsPage = () => <AccountPage title="Budgets">{() => <Budgets />}</AccountPage>;

function Budgets() {
  const session = useSession();
  const account = useAccount();
  const [search, change] = usePageSearch();
  const [dialog, setDialog] = useState(false);
  const { above, all, error, isCut } = useBudgetTree(account);
  const effective = useQuery({ ...api.effective(account), enabled: account !== "", retry: false });
  const outside = (effective.data?.budgets ?? []).filter((budget) => !above.some((known) => budgetId(known) === budgetId(budget)));
  const binding = bindingBudget([...above, ...outside]);
  const open = all?.find((budget) => budgetId(budget) === search.open);
  return (
    <Page
      title="Budgets" about={<>Limits that apply to {visible(account)}: its own, those above it and those below it</>}
      actions={may(session, "budget") ? <button type="button" className="button primary" onClick={() => setDialog(true)}>Set budget</button> : undefined}
      panel={open ? <BudgetPanel budget={open} /> : undefined}
    >
      {error && !all ? <ProblemNote error={error} /> : null}
      <Stats label="Binding budget">
        <Stat label="Blocks first" tone={binding && perMille(micros(binding.used), micros(binding.limit)) >= 800 ? "orange" : "blue"} note={binding ? visible(binding.account) : "no hard budget applies"}>{binding ? visible(binding.name) : "–"}</Stat>
        <Stat label="Remaining" note={binding?.period_end ? <>new period <When at={binding.period_end} /></> : undefined}><Amount value={binding?.remaining} /></Stat>
        <Stat label="Used" tone="blue" note={binding ? formatShare(micros(binding.used), micros(binding.limit)) : undefined}><Amount value={binding?.used} /></Stat>
        <Stat label="Limit"><Amount value={binding?.limit} /></Stat>
      </Stats>
      {error && !all ? null : <Section title="Tree" unit="spent, held, limit; ticks are thresholds">
        <BudgetTable rows={all} binding={binding} open={search.open} onOpen={(budget) => change({ open: budgetId(budget) })} account={account} />
        {isCut ? <p className="muted small" role="note">The first 500 accounts with a budget are shown. Choose one further down for the rest.</p> : null}
      </Section>}
      {outside.length ? <Section title="Above your scope" unit="budgets of accounts above, which limit this one too"><OutsideTable rows={outside} binding={binding} /></Section> : null}
      {dialog ? <BudgetDialog close={() => setDialog(false)} /> : null}
    </Page>
  );
}

const BlocksFirst = () => <Badge tone="orange" mark="◆">blocks first</Badge>;

function OutsideTable({ rows, binding }: { rows: Limit[]; binding: Limit | undefined }) {
  return (
    <DataTable label="Budgets above your scope" rows={rows} rowId={budgetId} columns={[
      { id: "account", header: "Account", value: (budget) => budget.account, cell: (budget) => visible(budget.account) },
      { id: "name", header: "Budget", value: (budget) => budget.name, cell: (budget) => <>{visible(budget.name)} {binding && budgetId(binding) === budgetId(budget) ? <BlocksFirst /> : null}</> },
      { id: "mode", header: "Mode", value: (budget) => budget.mode, cell: (budget) => budget.mode, phone: false },
      { id: "share", header: "Used", num: true, value: (budget) => perMille(micros(budget.used), micros(budget.limit)), cell: (budget) => formatShare(micros(budget.used), micros(budget.limit)) },
      amountColumn("limit", "Limit", rows, (budget) => budget.limit),
      amountColumn("remaining", "Remaining", rows, (budget) => budget.remaining),
      { id: "end", header: "New period", num: true, value: (budget) => budget.period_end ?? "", cell: (budget) => <When at={budget.period_end} />, phone: false },
    ]} />
  );
}

function BudgetTable({ rows, binding, open, onOpen, account }: { rows: Budget[] | undefined; binding: Limit | undefined; open: string | undefined; onOpen: (budget: Budget) => void; account: string }) {
  const sorted = useMemo(() => rows && [...rows].sort((a, b) => (budgetId(a) < budgetId(b) ? -1 : 1)), [rows]);
  const all = sorted ?? [];
  return (
    <DataTable label="Budgets" rows={sorted} rowId={budgetId} open={open} onOpen={onOpen}
      empty={<Empty>Neither this account nor one below it has a budget. An administrator sets one:<pre>bursar budget set {account || "ACCOUNT"} month 1000 --period month</pre></Empty>}
      columns={[
        { id: "account", header: "Account", value: (budget) => budget.account, cell: (budget) => <span style={{ paddingLeft: 16 * (budget.account.split(":").length - 1) }}><AccountLink id={budget.account} page="/budgets" /></span> },
        { id: "name", header: "Budget", value: (budget) => budget.name, cell: (budget) => <>{visible(budget.name)} {binding && budgetId(binding) === budgetId(budget) ? <BlocksFirst /> : null}</> },
        { id: "mode", header: "Mode", value: (budget) => budget.mode, cell: (budget) => `${budget.mode}, per ${budget.period}`, phone: false },
        { id: "bar", header: "Spent and held of the limit", value: (budget) => perMille(micros(budget.used), micros(budget.limit)), cell: (budget) => <Bullet spent={micros(budget.spent)} held={micros(budget.held)} limit={micros(budget.limit)} thresholds={budget.thresholds} name={`${visible(budget.account)} ${visible(budget.name)}`} /> },
        { id: "share", header: "Used", num: true, value: (budget) => perMille(micros(budget.used), micros(budget.limit)), cell: (budget) => formatShare(micros(budget.used), micros(budget.limit)) },
        amountColumn("spent", "Spent", all, (budget) => budget.spent),
        amountColumn("held", "Held", all, (budget) => budget.held),
        amountColumn("limit", "Limit", all, (budget) => budget.limit),
        amountColumn("remaining", "Remaining", all, (budget) => budget.remaining),
        ...(all.some(({ unit }) => unit !== "credits") ? [{ id: "unit", header: "Unit", cell: (budget: Budget) => words(budget.unit), phone: false }] : []),
      ]} />
  );
}

function BudgetPanel({ budget }: { budget: Budget }) {
  const session = useSession();
  const [dialog, setDialog] = useState(false);
  return (
    <Panel title={visible(budget.name)}>
      <Bullet spent={micros(budget.spent)} held={micros(budget.held)} limit={micros(budget.limit)} thresholds={budget.thresholds} name={visible(budget.name)} />
      <dl className="facts">
        <dt>Account</dt><dd><AccountLink id={budget.account} page="/budgets" /></dd>
        <dt>Mode</dt><dd>{budget.mode === "hard" ? "hard: new holds beyond it are refused" : "soft: it only warns"}</dd>
        <dt>Spent</dt><dd><Amount value={budget.spent} /></dd>
        <dt>Held</dt><dd><Amount value={budget.held} /></dd>
        <dt>Limit</dt><dd><Amount value={budget.limit} /> {words(budget.unit)} per {budget.period}</dd>
        <dt>Remaining</dt><dd><Amount value={budget.remaining} /></dd>
        <dt>Thresholds</dt><dd>{budget.thresholds.map((percent) => `${percent} %`).join(", ")}</dd>
        <dt>Period</dt><dd><When at={budget.period_start} exact /> to <When at={budget.period_end} exact /></dd>
      </dl>
      {may(session, "budget") ? <div className="actions"><button type="button" className="button" onClick={() => setDialog(true)}>Change limit</button></div> : null}
      {dialog ? <BudgetDialog budget={budget} close={() => setDialog(false)} /> : null}
    </Panel>
  );
}
