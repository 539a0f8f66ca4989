import { useQueries } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { serverNow } from "../../api/client";
import { api } from "../../api/queries";
import type { Statement } from "../../api/types";
import { save } from "../../charts/twin";
import { csv, formatAmount, micros, monthStart, plainAmount, rfc3339, visible } from "../../format";
import { Amount, Badge, Stat, Stats } from "../../ui/basics";
import { Empty, ProblemNote } from "../../ui/messages";
import { Section } from "../../ui/page";
import { amountColumn, DataTable, type TableColumn } from "../../ui/table";
import { difference, grantTotals, monthRow, type MonthRow } from "../creditmath";
import { useGrants } from "../credits";

const MONTHS = 6;

const COLUMNS = [
  ["opening", "Opening"], ["granted", "Granted"], ["spent", "Spent"], ["expired", "Expired"], ["left_other", "Revoked or moved"], ["held", "Held"], ["left", "Left"],
] as const;

/** granted = spent + held + expired + left, by month, with export and proof. */
export function FinanceHome({ account }: { account: string }) {
  const { grants, error } = useGrants(account);
  const total = grants ? grantTotals(grants.filter((grant) => grant.account === account)) : undefined;
  return (
    <>
      {total ? (
        <Stats label="Granted is spent, held, expired, revoked and left" equation>
          <Stat label="Granted" to="/credits"><Amount value={total.amount} /></Stat><span className="sign" aria-hidden="true">=</span>
          <Stat label="Spent" tone="blue" to="/spend"><Amount value={total.spent} /></Stat><span className="sign" aria-hidden="true">+</span>
          <Stat label="Held" tone="violet" to="/credits"><Amount value={total.held} /></Stat><span className="sign" aria-hidden="true">+</span>
          <Stat label="Expired" tone="red" to="/credits"><Amount value={total.expired} /></Stat><span className="sign" aria-hidden="true">+</span>
          <Stat label="Revoked or moved" tone="slate" to="/credits"><Amount value={total.revoked + total.moved} /></Stat><span className="sign" aria-hidden="true">+</span>
          <Stat label="Left" tone="green" to="/credits"><Amount value={total.available} /></Stat>
        </Stats>
      ) : error ? <ProblemNote error={error} /> : null}
      <Months account={account} />
      <Section title="Proof"><p className="prose">Every amount follows from records of a signed journal. <Link to="/audit">Verify it on the page Audit</Link>, or offline with <code>bursar audit verify</code>.</p></Section>
    </>
  );
}

/** Months before the first grant are left out. */
const hasMoved = (statement: Statement) => statement.movements.length > 0 || micros(statement.opening) !== 0n;

const METRICS = ["held", "spent", "expired"] as const;

function Months({ account }: { account: string }) {
  const now = useMemo(() => Math.ceil(serverNow() / 60_000) * 60_000, [account]);
  const starts = Array.from({ length: MONTHS }, (_, i) => monthStart(now, -i));
  const ends = starts.map((start) => Math.min(now, monthStart(start, 1)));
  const results = useQueries({ queries: starts.map((start, i) => ({ ...api.statement(account, rfc3339(start), rfc3339(ends[i] ?? now)), enabled: account !== "" })) });
  const shown = results.flatMap((result, i) => (result.data && (i === 0 || hasMoved(result.data)) ? [{ statement: result.data, start: starts[i] ?? 0, end: ends[i] ?? now }] : []));
  // A statement counts what happened before its end; the last instant before it is a millisecond earlier.
  const ask = shown.flatMap(({ start, end }) => METRICS.map((metric) => ({ ...api.series(account, { metric, from: rfc3339(start - 1), to: rfc3339(end - 1), points: 2 }), enabled: account !== "" })));
  const series = useQueries({ queries: ask });
  const error = [...results, ...series].find((result) => result.error)?.error;
  const isReady = results.every((result) => result.data) && series.every((result) => result.data);
  const rows = isReady ? shown.map(({ statement, start }, i) => monthRow(rfc3339(start).slice(0, 7), statement, METRICS.map((_, j) => (series[i * METRICS.length + j]?.data?.points ?? []).map((point) => micros(point.amount))))) : [];
  const columns: TableColumn<MonthRow>[] = [
    { id: "month", header: "Month", value: (row) => row.month, cell: (row) => row.month },
    ...COLUMNS.filter(([key]) => key !== "left_other" || rows.some((row) => row.left_other !== 0n)).map(([key, name]) => amountColumn<MonthRow>(key, name, rows, (row) => row[key])),
    { id: "sum", header: "Adds up", cell: (row) => (difference(row) === 0n ? <Badge tone="green" mark="✓">yes</Badge> : <Badge tone="red" mark="✕">{formatAmount(difference(row))} missing</Badge>) },
  ];
  const file = () => save(`months-${account}.csv`, csv([["month", ...COLUMNS.map(([key]) => key)], ...rows.map((row) => [row.month, ...COLUMNS.map(([key]) => plainAmount(row[key]))])]));
  return (
    <Section title="By month" unit={`opening + granted = spent + expired + held + left, of ${visible(account)} itself; accounts below it have their own`} actions={<button type="button" className="button small" disabled={rows.length === 0} onClick={file}>Download CSV</button>}>
      {error ? <ProblemNote error={error} /> : null}
      {error && !isReady ? null : <DataTable label={`Months of ${visible(account)}`} rows={!isReady && account ? undefined : rows} columns={columns} rowId={(row) => row.month} empty={<Empty>No account is chosen.</Empty>} />}
    </Section>
  );
}
