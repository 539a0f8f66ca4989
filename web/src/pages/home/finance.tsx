import { useQueries } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { serverNow } from "../../api/client";
import { api } from "../../api/queries";
import type { Statement } from "../../api/types";
import { save } from "../../charts/twin";
import { csv, formatAmount, micros, monthStart, rfc3339, title, visible } from "../../format";
import { Amount, Stat, Stats } from "../../ui/basics";
import { Empty, ProblemNote } from "../../ui/messages";
import { Section } from "../../ui/page";
import { amountColumn, DataTable, type TableColumn } from "../../ui/table";
import { grantTotals } from "../creditmath";
import { useGrants } from "../credits";

const MONTHS = 6;

/** granted = spent + held + expired + left, by month, with export and proof. */
export function FinanceHome({ account }: { account: string }) {
  const { grants } = useGrants(account);
  const total = grants ? grantTotals(grants.filter((grant) => grant.account === account)) : undefined;
  return (
    <>
      {total ? (
        <Stats label="Granted is spent, held, expired, revoked and left" equation>
          <Stat label="Granted"><Amount value={total.amount} /></Stat><span className="sign" aria-hidden="true">=</span>
          <Stat label="Spent" tone="blue"><Amount value={total.spent} /></Stat><span className="sign" aria-hidden="true">+</span>
          <Stat label="Held" tone="violet"><Amount value={total.held} /></Stat><span className="sign" aria-hidden="true">+</span>
          <Stat label="Expired" tone="red"><Amount value={total.expired} /></Stat><span className="sign" aria-hidden="true">+</span>
          <Stat label="Revoked or moved" tone="slate"><Amount value={total.revoked + total.moved} /></Stat><span className="sign" aria-hidden="true">+</span>
          <Stat label="Left" tone="green" to="/credits"><Amount value={total.available} /></Stat>
        </Stats>
      ) : null}
      <Months account={account} />
      <Section title="Proof"><p className="prose">Every amount follows from records of a signed journal. <Link to="/audit">Verify it on the page Audit</Link>, or offline with <code>bursar audit verify</code>.</p></Section>
    </>
  );
}

/** Months before the first grant are left out. */
const hasMoved = (statement: Statement) => statement.movements.length > 0 || micros(statement.opening) !== 0n;

interface MonthRow {
  month: string;
  statement: Statement;
}

function Months({ account }: { account: string }) {
  const now = useMemo(() => Math.ceil(serverNow() / 60_000) * 60_000, [account]);
  const starts = Array.from({ length: MONTHS }, (_, i) => monthStart(now, -i));
  const results = useQueries({ queries: starts.map((start) => ({ ...api.statement(account, rfc3339(start), rfc3339(Math.min(now, monthStart(start, 1)))), enabled: account !== "" })) });
  const error = results.find((result) => result.error)?.error;
  const rows = results.flatMap((result, i): MonthRow[] => result.data && (i === 0 || hasMoved(result.data)) ? [{ month: rfc3339(starts[i] ?? 0).slice(0, 7), statement: result.data }] : []);
  const types = [...new Set(rows.flatMap(({ statement }) => statement.movements.map(({ type }) => type)))].filter((type) => rows.some((row) => movement(row, type) !== 0n));
  const columns: TableColumn<MonthRow>[] = [
    { id: "month", header: "Month", value: (row) => row.month, cell: (row) => row.month },
    amountColumn("opening", "Opening", rows, (row) => row.statement.opening),
    ...types.map((type) => amountColumn<MonthRow>(type, title(type), rows, (row) => movement(row, type))),
    amountColumn("closing", "Closing", rows, (row) => row.statement.closing),
  ];
  const file = () => save(`statement-${account}.csv`, csv([["month", "opening", ...types, "closing"], ...rows.map((row) => [row.month, row.statement.opening, ...types.map((type) => formatAmount(movement(row, type)).replaceAll(",", "").replace("−", "-")), row.statement.closing])]));
  return (
    <Section title="By month" unit="credits available to the account; opening and movements give closing" actions={<button type="button" className="button small" disabled={rows.length === 0} onClick={file}>Download CSV</button>}>
      {error ? <ProblemNote error={error} /> : null}
      <DataTable label={`Months of ${visible(account)}`} rows={results.every((result) => result.isPending) && account ? undefined : rows} columns={columns} rowId={(row) => row.month} empty={<Empty>No account is chosen.</Empty>} />
    </Section>
  );
}

const movement = (row: MonthRow, type: string): bigint => row.statement.movements.filter((line) => line.type === type).reduce((total, line) => total + micros(line.amount), 0n);
