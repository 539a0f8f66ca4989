import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api } from "../api/queries";
import type { Account } from "../api/types";
import { micros, visible, words } from "../format";
import { AccountLink, Amount, Badge, Id } from "../ui/basics";
import { Empty, FirstOnly, Loaded } from "../ui/messages";
import { Page, Panel } from "../ui/page";
import { usePageSearch } from "../ui/search";
import { amountColumn, DataTable } from "../ui/table";

export function AccountsPage() {
  const [search, change] = usePageSearch();
  const query = useQuery(api.accounts());
  const rows = useMemo(() => query.data && [...query.data].sort((a, b) => (a.id < b.id ? -1 : 1)), [query.data]);
  const open = rows?.find(({ id }) => id === search.open);
  return (
    <Page title="Accounts" about="Organisations, teams, projects and users in your scope." panel={open ? <AccountPanel account={open} /> : undefined}>
      <Loaded query={query}>
        {() => <>
          <FirstOnly of={[api.accounts()]} what="accounts" />
          <DataTable label="Accounts" rows={rows} rowId={({ id }) => id} open={search.open} onOpen={({ id }) => change({ open: id })} empty={<Empty>No account yet.<pre>bursar account open acme --kind org</pre></Empty>} columns={[
            { id: "id", header: "Account", value: ({ id }) => id, cell: ({ id }) => <span style={{ paddingLeft: 16 * (id.split(":").length - 1) }}><Id id={id} /></span> },
            { id: "name", header: "Name", value: ({ name }) => name ?? "", cell: ({ name }) => visible(name) },
            { id: "kind", header: "Kind", value: ({ kind }) => kind, cell: ({ kind }) => words(kind) },
            amountColumn("weight", "Weight", rows ?? [], ({ weight }) => String(weight)),
            amountColumn("uncollected", "Uncollected", rows ?? [], ({ uncollected }) => uncollected, { unit: "credits" }),
            { id: "state", header: "State", value: ({ frozen }) => (frozen ? 1 : 0), cell: ({ frozen }) => frozen ? <Badge tone="red" mark="✕">frozen</Badge> : <Badge tone="green" mark="●">open</Badge> },
          ]} />
        </>}
      </Loaded>
    </Page>
  );
}

function AccountPanel({ account }: { account: Account }) {
  const balance = useQuery(api.balance(account.id));
  const effective = useQuery({ ...api.effective(account.id), retry: false });
  return (
    <Panel title={visible(account.name) || visible(account.id)}>
      <Loaded query={balance}>
        {(data) => (
          <dl className="facts">
            <dt>Id</dt><dd><Id id={account.id} /></dd>
            <dt>Spendable</dt><dd><Amount value={data.spendable} /></dd>
            <dt>Own credits available</dt><dd><Amount value={data.available} /></dd>
            <dt>Held of its grants</dt><dd><Amount value={data.held} /></dd>
            {Object.entries(data.by_kind).filter(([, amount]) => micros(amount) > 0n).map(([kind, amount]) => [<dt key={kind}>{words(kind)}</dt>, <dd key={`${kind} amount`}><Amount value={amount} /></dd>])}
            {effective.data ? <><dt>Spent by it</dt><dd><Amount value={effective.data.spent_by_me} /></dd><dt>Held by it</dt><dd><Amount value={effective.data.held_by_me} /></dd></> : null}
          </dl>
        )}
      </Loaded>
      <div className="row link"><AccountLink id={account.id} /><AccountLink id={account.id} page="/spend" /></div>
    </Panel>
  );
}
