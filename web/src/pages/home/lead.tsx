import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { serverNow } from "../../api/client";
import { api } from "../../api/queries";
import { formatShare, micros, monthStart, rfc3339, visible } from "../../format";
import { AccountLink, Amount, Stat, Stats } from "../../ui/basics";
import { Bar } from "../../charts/bars";
import { Empty, Loaded, ProblemNote } from "../../ui/messages";
import { Section } from "../../ui/page";
import { amountColumn, DataTable } from "../../ui/table";
import { GrantsCut, GrantTable, useGrants } from "../credits";
import { Attention } from "./attention";
import { MoneyLine } from "./money";

/** Who burns, projected end of month, what expires and how to save it. */
export function LeadHome({ account }: { account: string }) {
  const { grants, error, isCut } = useGrants(account, true);
  const expiring = useMemo(() => grants?.filter((grant) => grant.expires_at && micros(grant.available) > 0n), [grants]);
  return (
    <>
      <MoneyLine account={account} />
      <MonthLine account={account} />
      <Attention account={account} />
      <Burners account={account} />
      <Section title="Credits that expire" unit="submit work that can draw on them, or move them to an account that will">{error && !grants ? <ProblemNote error={error} /> : expiring?.length === 0 && !isCut ? <p className="muted">No credits of {visible(account)} or below it expire.</p> : <GrantTable grants={expiring} account={account} />}{isCut ? <GrantsCut /> : null}</Section>
    </>
  );
}

function useMonth(account: string, by: string) {
  const to = useMemo(() => Math.ceil(serverNow() / 60_000) * 60_000, [account]);
  const spend = useQuery({ ...api.spend(account, { interval: "month", by, k: 20, from: rfc3339(monthStart(to)), to: rfc3339(to) }), enabled: account !== "" });
  return spend;
}

function MonthLine({ account }: { account: string }) {
  const forecast = useQuery({ ...api.forecast(account), enabled: account !== "" });
  return (
    <Loaded query={forecast} rows={2}>
      {(rates) => (
        <Stats label="This month">
          <Stat label="Spent this month" tone="blue" to="/spend"><Amount value={rates.month_spent} /></Stat>
          <Stat label="Projected month end" to="/spend" note="at the average of 24 h"><Amount value={rates.month_projected} /></Stat>
        </Stats>
      )}
    </Loaded>
  );
}

function Burners({ account }: { account: string }) {
  const spend = useMonth(account, "subtree");
  return (
    <Section title="Who burns" unit="credits this month, by team">
      <Loaded query={spend}>
        {(data) => (
          <DataTable label="Spend by account this month" rows={data.series} rowId={(row) => row.key ?? "none"} empty={<Empty>Nothing was spent this month.</Empty>} columns={[
            { id: "account", header: "Account", value: (row) => row.key ?? "", cell: (row) => row.key ? <AccountLink id={row.key} page="/spend" /> : "none" },
            amountColumn("spent", "Spent", data.series, (row) => row.total, { unit: "credits" }),
            { id: "share", header: "Share", num: true, value: (row) => micros(row.total), cell: (row) => formatShare(micros(row.total), micros(data.total)) },
            { id: "bar", header: "", cell: (row) => <Bar label={`${visible(row.key)} ${row.total}`} whole={micros(data.total)} parts={[[micros(row.total), "blue"]]} /> },
          ]} />
        )}
      </Loaded>
    </Section>
  );
}
