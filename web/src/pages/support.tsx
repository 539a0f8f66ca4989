import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useState, type FormEvent } from "react";
import { api } from "../api/queries";
import type { Found } from "../api/reports";
import { micros, millis, visible, words } from "../format";
import { AccountLink, Amount, Badge, Id, jobPath, When } from "../ui/basics";
import { Empty, Loaded } from "../ui/messages";
import { Page, Section } from "../ui/page";
import { usePageSearch } from "../ui/search";
import { DataTable } from "../ui/table";
import { JobFacts } from "./jobs/panel";
import { Lane } from "./jobs/lane";
import { TimelineList } from "./jobs/timeline";
import { Waterfall } from "../charts/bars";

/** One search box; what is found is shown as one timeline of money and placement. */
export function SupportPage() {
  const [search, change] = usePageSearch();
  const [text, setText] = useState(search.q ?? "");
  useEffect(() => setText(search.q ?? ""), [search.q]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    change({ q: text.trim() || undefined, open: undefined });
  };
  return (
    <Page title="Support" about="A job, hold, grant, charge, account, request or key, by id or name.">
      <form role="search" className="toolbar" onSubmit={submit}>
        <input type="search" aria-label="Id or name" placeholder="job_…, hold_…, req_…, key_…, or a name" value={text} onChange={(event) => setText(event.target.value)} style={{ width: 420 }} autoFocus />
        <button className="button primary" type="submit">Search</button>
      </form>
      {search.q ? <Results q={search.q} /> : <Empty>Search for any id. Ids are in every answer of the API, in error messages (request id) and in <code>bursar ls</code>.</Empty>}
    </Page>
  );
}

const foundId = (found: Found) => `${found.kind} ${found.id}`;

function Results({ q }: { q: string }) {
  const [search, change] = usePageSearch();
  const query = useQuery(api.search(q));
  const rows = query.data?.data;
  const chosen = rows?.find((found) => foundId(found) === search.open) ?? (rows?.length === 1 ? rows[0] : rows?.find(({ exact }) => exact));
  return (
    <>
        <Loaded query={query}>
          {({ data, truncated }) => (
            <>
            <DataTable label="Found" rows={data} rowId={foundId} open={chosen ? foundId(chosen) : undefined} onOpen={(found) => change({ open: foundId(found) })} empty={<Empty>Nothing in your scope has this id or name.</Empty>} columns={[
              { id: "kind", header: "Kind", value: (found) => found.kind, cell: (found) => words(found.kind) },
              { id: "id", header: "Id", value: (found) => found.id, cell: (found) => <Id id={found.id} to={found.kind === "job" ? jobPath(found.id) : undefined} /> },
              ...(data.some(({ name }) => name) ? [{ id: "name", header: "Name", cell: (found: Found) => visible(found.name) }] : []),
              { id: "account", header: "Account", cell: (found) => found.account ? <AccountLink id={found.account} /> : null },
              ...(data.some(({ at }) => at) ? [{ id: "at", header: "Made", num: true, value: (found: Found) => millis(found.at), cell: (found: Found) => <When at={found.at} /> }] : []),
            ]} />
            {truncated ? <p className="muted small">There are more: write more of the id or name.</p> : null}
            </>
          )}
        </Loaded>
      {chosen ? <Story found={chosen} /> : null}
    </>
  );
}

/** One timeline of money and placement. */
function Story({ found }: { found: Found }) {
  switch (found.kind) {
    case "job":
      return <JobStory id={found.id} />;
    case "hold":
      return <HoldStory id={found.id} />;
    case "grant":
      return <GrantStory id={found.id} />;
    case "account":
      return <p><Link className="link" to="/credits" search={{ account: found.id } as never}>Open the credits of {visible(found.id)}</Link></p>;
    case "key":
      return <p><Link className="link" to="/audit" search={{ q: found.id } as never}>Open what {visible(found.id)} did</Link></p>;
    case "request":
      return <p><Link className="link" to="/audit" search={{ after: String(Math.max(0, (found.position ?? 1) - 1)), open: `${found.position ?? 0}.0` } as never}>Open the record of {visible(found.id)} in the audit trail</Link></p>;
    case "charge":
      return <p><Link className="link" to="/audit" search={(found.account ? { account: found.account } : {}) as never}>Open the audit trail of {visible(found.account)}</Link></p>;
  }
}

function JobStory({ id }: { id: string }) {
  const job = useQuery(api.job(id));
  const timeline = useQuery(api.timeline(id));
  return (
    <Loaded query={job}>
      {(data) => (
        <div className="two wide-left">
          <Section title="Timeline of money and placement">{timeline.data ? <><Lane job={data} timeline={timeline.data} /><TimelineList entries={timeline.data} /></> : null}</Section>
          <Section title={visible(data.spec.name) || "Job"}><JobFacts job={data} /></Section>
        </div>
      )}
    </Loaded>
  );
}

/** Holds of jobs name the job in their reference or share its number. */
function HoldStory({ id }: { id: string }) {
  const hold = useQuery(api.hold(id));
  return (
    <Loaded query={hold}>
      {(data) => (
        <div className="two">
          <Section title="Hold">
            <dl className="facts">
              <dt>Id</dt><dd><Id id={data.id} /></dd>
              <dt>State</dt><dd><Badge tone={data.state === "open" ? "violet" : data.state === "lapsed" ? "red" : "green"}>{words(data.state)}</Badge></dd>
              <dt>Account</dt><dd><AccountLink id={data.account} /></dd>
              <dt>Made</dt><dd><When at={data.created_at} exact /></dd>
              <dt>Ends</dt><dd><When at={data.expires_at} exact /></dd>
              {data.reference ? <><dt>Reference</dt><dd>{visible(data.reference)}</dd></> : null}
            </dl>
          </Section>
          <Section title="Credits">
            <Waterfall label="Where the credits of the hold went" steps={[
              { name: "Held", amount: micros(data.amount), tone: "violet", total: true },
              { name: "Spent", amount: -micros(data.captured), tone: "blue" },
              { name: "Returned", amount: -(micros(data.amount) - micros(data.captured) - micros(data.remaining)), tone: "green" },
              { name: "Still held", amount: micros(data.remaining), tone: "violet", total: true },
            ]} />
            <h3>Drawn from</h3>
            <ul>{data.lots.map((lot, i) => <li key={i} className="row"><Id id={lot.grant} /><Amount value={lot.amount} /></li>)}</ul>
          </Section>
        </div>
      )}
    </Loaded>
  );
}

function GrantStory({ id }: { id: string }) {
  const grant = useQuery(api.grant(id));
  return <Loaded query={grant}>{(data) => <p>{visible(data.id)}: <Amount value={data.available} /> of <Amount value={data.amount} /> left. <Link className="link" to="/credits" search={{ account: data.account, open: data.id } as never}>Open it among the credits of {visible(data.account)}</Link></p>}</Loaded>;
}
