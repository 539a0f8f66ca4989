import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { Waterfall } from "../../charts/bars";
import { api } from "../../api/queries";
import type { Found } from "../../api/reports";
import { may, rolesFor } from "../../api/session";
import type { Charge, Grant, Hold } from "../../api/types";
import { micros, millis, rfc3339, visible, words } from "../../format";
import { AccountLink, Amount, Badge, Id, When } from "../../ui/basics";
import { useSession } from "../../ui/context";
import { FirstOnly, Forbidden, Loaded } from "../../ui/messages";
import { Section } from "../../ui/page";
import { Lane } from "../jobs/lane";
import { JobFacts } from "../jobs/panel";
import { TimelineList } from "../jobs/timeline";
import { EntryList, RecordList } from "./lists";

/** What happened to what was found: one timeline of money and placement. */
export function Story({ found }: { found: Found }) {
  switch (found.kind) {
    case "job":
      return <JobStory id={found.id} />;
    case "hold":
      return <HoldStory id={found.id} />;
    case "grant":
      return <GrantStory id={found.id} />;
    case "charge":
      return <ChargeStory id={found.id} />;
    case "account":
      return <p><Link className="link" to="/credits" search={{ account: found.id } as never}>Open the credits of {visible(found.id)}</Link></p>;
    case "key":
      return <Records title={`What ${visible(found.name) || visible(found.id)} did`} query={{ actor: found.id }} />;
    case "request":
      return <Records title={found.exact ? `Record ${found.position ?? ""} of ${visible(found.id)}` : `Record ${found.position ?? ""}, made when ${visible(found.id)} arrived or soon after`} query={{ position: String(found.position ?? 0), ...(found.machine ? { machine: found.machine } : {}) }} open={`${found.position ?? 0}.0`} />;
  }
}

/** Records of the audit trail, and the same on the page Audit. */
function Records({ title, query, open }: { title: string; query: { position?: string; actor?: string; machine?: string }; open?: string }) {
  const session = useSession();
  const records = useInfiniteQuery({ ...api.audit(query), enabled: may(session, "audit") });
  if (!may(session, "audit")) return <Section title={title}><Forbidden needs={rolesFor("audit")} /></Section>;
  return (
    <Section title={title} actions={<Link className="link small" to="/audit" search={{ ...query, ...(open ? { open } : {}) } as never}>Open in the audit trail</Link>}>
      <Loaded query={records}>{({ pages }) => <RecordList machine={query.machine} records={pages.flatMap(({ data }) => data)} more={records.hasNextPage ? () => void records.fetchNextPage() : undefined} />}</Loaded>
    </Section>
  );
}

function JobStory({ id }: { id: string }) {
  const job = useQuery(api.job(id));
  const timeline = useQuery(api.timeline(id));
  return (
    <Loaded query={job}>
      {(data) => (
        <div className="two wide-left">
          <Section title="Timeline of money and placement">
            <Loaded query={timeline}>{(entries) => <><Lane job={data} timeline={entries} /><TimelineList entries={entries} /></>}</Loaded>
            <FirstOnly of={[api.timeline(id)]} what="entries of the timeline" />
          </Section>
          <Section title={visible(data.spec.name) || "Job"}><JobFacts job={data} /></Section>
        </div>
      )}
    </Loaded>
  );
}

/** The movements of an instant and after it that concern one hold or charge. */
function useMovements(account: string | undefined, from: string | undefined) {
  const start = millis(from);
  return useInfiniteQuery({ ...api.spentEntries(account ?? "", start === undefined ? {} : { from: rfc3339(start) }), enabled: account !== undefined && start !== undefined });
}

/** The job of a hold, from the movement that placed it. */
function useJobOf(hold: Hold | undefined) {
  const at = millis(hold?.created_at);
  const placed = useInfiniteQuery({ ...api.spentEntries(hold?.account ?? "", at === undefined ? {} : { from: rfc3339(at), to: rfc3339(at + 1) }), enabled: at !== undefined });
  const entries = placed.data?.pages.flatMap(({ data }) => data);
  return { job: entries?.find((entry) => entry.hold === hold?.id)?.job ?? undefined, isKnown: entries !== undefined || placed.error !== null };
}

function HoldStory({ id }: { id: string }) {
  const hold = useQuery(api.hold(id));
  const { job, isKnown } = useJobOf(hold.data);
  return (
    <Loaded query={hold}>
      {(data) => (
        <>
          <HoldFacts hold={data} job={job} />
          {job ? <JobStory id={job} /> : isKnown ? <Movements account={data.account} from={data.created_at} hold={data.id} /> : <span aria-busy="true" className="sr">Loading</span>}
        </>
      )}
    </Loaded>
  );
}

function Movements({ account, from, hold }: { account: string; from: string; hold: string }) {
  const entries = useMovements(account, from);
  return (
    <Section title="Timeline of money">
      <Loaded query={entries}>{({ pages }) => <EntryList entries={pages.flatMap(({ data }) => data).filter((entry) => entry.hold === hold).reverse()} more={entries.hasNextPage ? () => void entries.fetchNextPage() : undefined} />}</Loaded>
    </Section>
  );
}

const Lots = ({ lots }: { lots: Hold["lots"] }) => <><h3>Drawn from</h3><ul>{lots.map((lot, i) => <li key={i} className="row"><Id id={lot.grant} /><Amount value={lot.amount} /></li>)}</ul></>;

function HoldFacts({ hold: data, job }: { hold: Hold; job: string | undefined }) {
  return (
    <div className="two">
      <Section title="Hold">
        <dl className="facts">
          <dt>Id</dt><dd><Id id={data.id} /></dd>
          <dt>State</dt><dd><Badge tone={data.state === "open" ? "violet" : data.state === "lapsed" ? "red" : "green"}>{words(data.state)}</Badge></dd>
          <dt>Account</dt><dd><AccountLink id={data.account} /></dd>
          {job ? <><dt>Job</dt><dd><Id id={job} to={`/jobs/${encodeURIComponent(job)}`} /></dd></> : null}
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
        <Lots lots={data.lots} />
      </Section>
    </div>
  );
}

const Facts = ({ children }: { children: ReactNode }) => <dl className="facts">{children}</dl>;

function ChargeStory({ id }: { id: string }) {
  const charge = useQuery(api.charge(id));
  return (
    <Loaded query={charge}>
      {(data: Charge) => (
        <>
          <Section title="Charge">
            <Facts>
              <dt>Id</dt><dd><Id id={data.id} /></dd>
              <dt>Account</dt><dd><AccountLink id={data.account} /></dd>
              <dt>Charged</dt><dd><Amount value={data.charged} /></dd>
              <dt>Refunded</dt><dd><Amount value={data.refunded} /></dd>
              <dt>Made</dt><dd><When at={data.created_at} exact /></dd>
            </Facts>
            <Lots lots={data.lots} />
          </Section>
          <Movements account={data.account} from={data.created_at} hold={data.id} />
        </>
      )}
    </Loaded>
  );
}

function GrantStory({ id }: { id: string }) {
  const grant = useQuery(api.grant(id));
  return <Loaded query={grant}>{(data) => <GrantTimeline grant={data} />}</Loaded>;
}

function GrantTimeline({ grant }: { grant: Grant }) {
  const entries = useInfiniteQuery(api.grantEntries(grant.account, grant.id));
  return (
    <>
      <p>{visible(grant.id)}: <Amount value={grant.available} /> of <Amount value={grant.amount} /> left. <Link className="link" to="/credits" search={{ account: grant.account, open: grant.id } as never}>Open it among the credits of {visible(grant.account)}</Link></p>
      <Section title="Timeline of money" unit="movements of its credits, newest first">
        <Loaded query={entries}>{({ pages }) => <EntryList entries={pages.flatMap(({ data }) => data)} more={entries.hasNextPage ? () => void entries.fetchNextPage() : undefined} />}</Loaded>
      </Section>
    </>
  );
}
