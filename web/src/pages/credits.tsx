import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { GrantDialog, RevokeGrantDialog } from "../actions/money";
import { serverNow } from "../api/client";
import { api, isCut as isCutList, MAX_ROWS } from "../api/queries";
import { may } from "../api/session";
import type { Forecast, Grant } from "../api/types";
import { Bar, Waterfall } from "../charts/bars";
import { BAND_DAYS, burnDown, leftOver, rateBand } from "../charts/burndown";
import { ChartWithTwin } from "../charts/twin";
import type { ChartMark, ChartSeries } from "../charts/timechart";
import { formatAmount, formatDay, formatDuration, micros, millis, rfc3339, sum, visible, words, type Micros } from "../format";
import { AccountLink, Amount, Badge, Id, Stat, Stats, When, type Tone } from "../ui/basics";
import { useNow, useSession } from "../ui/context";
import { Empty, Loaded, ProblemNote } from "../ui/messages";
import { Choice, Page, Panel, Section } from "../ui/page";
import { AccountPage } from "../ui/noaccount";
import { usePreferences } from "../ui/preferences";
import { useAccount, usePageSearch } from "../ui/search";
import { amountColumn, DataTable } from "../ui/table";
import { grantTotals, visibleAncestors, waterfallOf } from "./creditmath";

const DAY = 86_400_000;
/** Grants that expire within this time are shown as expiring soon. */
export const SOON = 14 * DAY;
/** Areas of the burn-down; the rest is one area. */
const MAX_AREAS = 8;

/** Accounts below one whose grants are read. */
const MAX_BELOW = 40;

/** Grants that the account can draw on: its own and those above it; with `below` also those of the accounts below it. */
export function useGrants(account: string, below = false): { grants: Grant[] | undefined; error: Error | null; isCut: boolean } {
  const session = useSession();
  const accounts = useQuery({ ...api.accounts(), enabled: below });
  const under = below ? (accounts.data ?? []).map(({ id }) => id).filter((id) => account && id.startsWith(`${account}:`)).sort() : [];
  const down = under.slice(0, MAX_BELOW);
  const paths = [...visibleAncestors(account, session.scope), ...down];
  const results = useQueries({ queries: paths.map((path) => api.grants(path)) });
  const isReady = results.length > 0 && results.every((result) => result.data) && (!below || accounts.data !== undefined);
  const isCut = under.length > down.length || (below && isCutList(api.accounts())) || paths.some((path) => isCutList(api.grants(path)));
  const grants = isReady ? results.flatMap((result) => result.data ?? []) : undefined;
  const key = grants?.map((grant) => `${grant.id} ${grant.available} ${grant.held} ${grant.spent} ${grant.expired} ${grant.revoked}`).join("\n");
  const stable = useMemo(() => grants, [key]);
  return { grants: stable, error: results.find((result) => result.error)?.error ?? (below ? accounts.error : null), isCut };
}

/** Says that not every grant was read. */
export const GrantsCut = () => <p className="muted small" role="note">Not every grant is read: those of the first {MAX_BELOW} accounts below, and at most {MAX_ROWS.toLocaleString("en-US")} of each. Choose an account further down for the rest.</p>;

export const CreditsPage = () => <AccountPage title="Credits">{() => <Credits />}</AccountPage>;

function Credits() {
  const session = useSession();
  const account = useAccount();
  const [search] = usePageSearch();
  const [granting, setGranting] = useState(false);
  const { grants, error, isCut } = useGrants(account);
  const forecast = useQuery({ ...api.forecast(account), enabled: account !== "" });
  const own = useMemo(() => grants?.filter((grant) => grant.account === account), [grants, account]);
  const open = grants?.find((grant) => grant.id === search.open);
  return (
    <Page
      title="Credits" about={account ? <>Credits of {visible(account)}{grants && own && grants.length > own.length ? ", and those above it that it can draw on" : ""}</> : undefined}
      actions={may(session, "grant") ? <button type="button" className="button primary" onClick={() => setGranting(true)}>Grant credits</button> : undefined}
      panel={open ? <GrantPanel grant={open} /> : undefined}
    >
      {error && !grants ? <ProblemNote error={error} /> : null}
      {grants ? <Equation grants={own?.length ? own : grants} /> : null}
      {grants ? <Loaded query={forecast} rows={8}>{(rates) => <BurnDownChart grants={grants} forecast={rates} account={account} />}</Loaded> : null}
      <PeriodWaterfall account={account} />
      {error && !grants ? null : <Section title="Grants" unit="soonest expiry first"><GrantTable grants={grants} account={account} />{isCut ? <GrantsCut /> : null}</Section>}
      {granting ? <GrantDialog close={() => setGranting(false)} /> : null}
    </Page>
  );
}

/** granted = spent + held + expired + revoked + left, over the grants shown. */
function Equation({ grants }: { grants: Grant[] }) {
  const total = grantTotals(grants);
  const parts: [string, Tone | undefined, Micros][] = [
    ["Spent", "blue", total.spent], ["Held", "violet", total.held], ["Expired", "red", total.expired], ["Revoked", "slate", total.revoked],
    ...(total.moved === 0n ? [] : [["Moved away", "slate", total.moved] as [string, Tone, Micros]]), ["Left", "green", total.available],
  ];
  return (
    <Stats label="Granted is spent, held, expired, revoked and left" equation>
      <Stat label="Granted"><Amount value={total.amount} /></Stat>
      {parts.map(([name, tone, amount], i) => [
        <span className="sign" key={`${name} sign`} aria-hidden="true">{i === 0 ? "=" : "+"}</span>,
        <Stat key={name} label={name} {...(tone ? { tone } : {})} {...(name === "Spent" ? { to: "/spend" } : {})}><Amount value={amount} /></Stat>,
      ])}
    </Stats>
  );
}

const HORIZONS = [["1", "1 d"], ["7", "7 d"], ["30", "30 d"], ["90", "90 d"]] as const;

function BurnDownChart({ grants, forecast, account }: { grants: Grant[]; forecast: Forecast; account: string }) {
  const [search, change] = usePageSearch();
  const { zone } = usePreferences();
  const days = HORIZONS.find(([value]) => value === search.interval)?.[0] ?? defaultHorizon(grants);
  const now = useMemo(serverNow, [grants]);
  const horizon = Number(days) * DAY;
  const rate = micros(forecast.burn_per_hour);
  const down = useMemo(() => burnDown(grants, rate, now, horizon), [grants, rate, now, horizon]);
  const hour = Math.floor(now / 3_600_000) * 3_600_000;
  const hourly = useQuery({ ...api.spend(account, { interval: "hour", by: "none", from: rfc3339(hour - BAND_DAYS * DAY), to: rfc3339(hour + 3_600_000) }), enabled: account !== "" });
  const band = useMemo(() => {
    const rates = hourly.data && rateBand(hourly.data.points, hour);
    return rates && { slow: burnDown(grants, rates.low, now, horizon), fast: burnDown(grants, rates.high, now, horizon) };
  }, [hourly.data, grants, now, hour, horizon]);
  const [before, isPastKnown] = usePast([...new Set(grants.map((grant) => grant.account))], now, horizon / 3);
  const at = useMemo(() => [...before.map(([time]) => time), ...down.at], [before, down]);
  const series = useMemo(() => burnSeries(down, before, now, band), [down, before, now, band]);
  const marks = useMemo(() => burnMarks(down, now, zone), [down, now, zone]);
  const ends = band && [spentBy(band.fast.emptyAt, zone), spentBy(band.slow.emptyAt, zone)];
  const range = ends && ends[0] !== ends[1] ? `. At the average rates of the last day, three days and week: ${ends.join(" to ")}` : "";
  const lasts = down.emptyAt ? `nothing is left after ${formatDay(down.emptyAt, zone)}` : "they last beyond the time shown";
  return (
    <>
      <ChartWithTwin
        title="Burn-down by grant" unit="credits left" at={at} series={series} marks={marks} busy={!isPastKnown || hourly.isPending} file={`burn-down-${account}.csv`}
        extra={<Choice label="Time ahead" value={days} choices={HORIZONS} onChange={(value) => change({ interval: value })} />}
      />
      <p className="muted small">At <Amount value={rate} /> credits per hour {lasts}{range}. {down.lost > 0n ? <span className="text-tone tone-orange">{formatAmount(down.lost)} credits expire unused within this time: run more until then, or move them with <code>bursar transfer</code>.</span> : "Nothing expires unused within this time."}{grants.some((grant) => grant.account !== account) ? ` Grants of accounts above ${visible(account)} are shared: others draw on them as well, so they may end earlier than shown.` : ""}</p>
    </>
  );
}

/** What the accounts together had available until now. */
function usePast(accounts: string[], now: number, span: number): [(readonly [number, Micros])[], boolean] {
  const minute = (at: number) => rfc3339(Math.floor(at / 60_000) * 60_000);
  const results = useQueries({ queries: accounts.map((account) => api.series(account, { metric: "available", from: minute(now - span), to: minute(now), points: 60 })) });
  const stamp = results.map((result) => result.dataUpdatedAt).join();
  const past = useMemo(() => {
    const all = results.map((result) => result.data?.points ?? []);
    if (all.some((points) => points.length !== all[0]?.length)) return [];
    return (all[0] ?? []).map((point, i) => [millis(point.at) ?? 0, sum(all.map((points) => micros(points[i]?.amount)))] as const).filter(([at]) => at < now);
  }, [stamp, now]);
  return [past, results.every((result) => !result.isPending)];
}

const spentBy = (at: number | undefined, zone: "utc" | "local") => (at === undefined ? "beyond the time shown" : formatDay(at, zone));

/** The shortest horizon that contains the next expiry. */
function defaultHorizon(grants: Grant[]): (typeof HORIZONS)[number][0] {
  const now = serverNow();
  const next = Math.min(...grants.map((grant) => millis(grant.expires_at) ?? Infinity).filter((at) => at > now));
  return HORIZONS.find(([days]) => next < now + Number(days) * DAY * 0.9)?.[0] ?? "30";
}

function burnSeries(down: ReturnType<typeof burnDown>, before: readonly (readonly [number, Micros])[], now: number, band: { slow: ReturnType<typeof burnDown>; fast: ReturnType<typeof burnDown> } | undefined): ChartSeries[] {
  const blank = before.map(() => null);
  const few = down.grants.slice(0, MAX_AREAS);
  const rest = down.grants.slice(MAX_AREAS);
  const isSoon = (grant: { expiresAt: number | undefined }) => grant.expiresAt !== undefined && grant.expiresAt - now < SOON;
  const soon = few.filter(isSoon).length;
  const areas = few.map((grant, i): ChartSeries => ({
    name: grant.id, area: true, tone: isSoon(grant) ? "orange" : "green", shade: isSoon(grant) ? [i, Math.max(soon, 2)] : [i - soon, Math.max(few.length - soon, 3)], values: [...blank, ...grant.left],
  }));
  if (rest.length) areas.push({ name: `${rest.length} more`, area: true, tone: "slate", values: [...blank, ...down.at.map((_, i) => sum(rest.map((grant) => grant.left[i] ?? 0n)))] });
  if (before.length) areas.push({ name: "Available until now", tone: "green", step: true, values: [...before.map(([, amount]) => amount), ...down.at.map(() => null)] });
  if (band) {
    areas.push({ name: "Least average rate", tone: "slate", dashed: true, edge: "upper", values: [...blank, ...leftOver(band.slow)] });
    areas.push({ name: "Greatest average rate", tone: "slate", dashed: true, edge: "lower", values: [...blank, ...leftOver(band.fast)] });
  }
  return areas;
}

function burnMarks(down: ReturnType<typeof burnDown>, now: number, zone: "utc" | "local"): ChartMark[] {
  const cliffs = down.grants.filter((grant) => grant.expiresAt !== undefined && grant.expiresAt > now && grant.expiresAt < (down.at.at(-1) ?? 0));
  return [
    { at: now, text: "now", tone: "slate" },
    ...cliffs.map((grant): ChartMark => ({ at: grant.expiresAt ?? 0, text: `${visible(grant.id)} expires ${formatDay(grant.expiresAt ?? 0, zone).slice(5)}`, tone: "orange" })),
    ...(down.emptyAt ? [{ at: down.emptyAt, text: "zero", tone: "red" as const }] : []),
  ];
}

const PERIODS = [["1", "Day"], ["7", "7 days"], ["30", "30 days"]] as const;

function PeriodWaterfall({ account }: { account: string }) {
  const [search, change] = usePageSearch();
  const days = PERIODS.find(([value]) => value === search.from)?.[0] ?? "30";
  const end = useMemo(() => Math.floor(serverNow() / 60_000) * 60_000 + 60_000, [account, days]);
  const statement = useQuery({ ...api.statement(account, rfc3339(end - Number(days) * DAY), rfc3339(end)), enabled: account !== "" });
  return (
    <Section title={`What changed in ${formatDuration(Number(days) * DAY)}`} unit="credits available" actions={<Choice label="Period" value={days} choices={PERIODS} onChange={(value) => change({ from: value })} />}>
      <Loaded query={statement}>{(data) => <Waterfall label="Statement of the period" steps={waterfallOf(data)} />}</Loaded>
    </Section>
  );
}

export function GrantTable({ grants, account }: { grants: Grant[] | undefined; account: string }) {
  const [search, change] = usePageSearch();
  const now = useNow(60_000);
  const rows = useMemo(() => grants && [...grants].sort((a, b) => (millis(a.expires_at) ?? Infinity) - (millis(b.expires_at) ?? Infinity)), [grants]);
  const all = rows ?? [];
  return (
    <DataTable label="Grants" rows={rows} rowId={(grant) => grant.id} open={search.open} onOpen={(grant) => change({ open: grant.id })}
      empty={<Empty>No grant yet. The platform grants credits:<pre>bursar grant add {account || "ACCOUNT"} 100 --kind purchase</pre></Empty>}
      columns={[
        { id: "id", header: "Grant", value: (grant) => grant.id, cell: (grant) => <Id id={grant.id} /> },
        { id: "account", header: "Account", value: (grant) => grant.account, cell: (grant) => <AccountLink id={grant.account} /> },
        { id: "kind", header: "Kind", value: (grant) => grant.kind, cell: (grant) => words(grant.kind) },
        { id: "expires", header: "Expires", value: (grant) => millis(grant.expires_at), cell: (grant) => <Expiry grant={grant} now={now} /> },
        amountColumn("amount", "Granted", all, (grant) => grant.amount),
        amountColumn("spent", "Spent", all, (grant) => grant.spent),
        amountColumn("held", "Held", all, (grant) => grant.held),
        amountColumn("left", "Left", all, (grant) => grant.available),
        { id: "bar", header: "", cell: (grant) => <Bar label={`${grant.spent} spent, ${grant.held} held, ${grant.available} left of ${grant.amount}`} whole={micros(grant.amount)} parts={[[micros(grant.spent), "blue"], [micros(grant.held), "violet"], [micros(grant.available), "green"], [micros(grant.expired), "red"]]} />, phone: false },
      ]} />
  );
}

function Expiry({ grant, now }: { grant: Grant; now: number }) {
  const at = millis(grant.expires_at);
  if (grant.is_revoked) return <Badge tone="slate" mark="–">revoked</Badge>;
  if (at === undefined) return <span className="faint">never</span>;
  if (at <= now) return <Badge tone="red" mark="✕">expired</Badge>;
  return at - now < SOON ? <Badge tone="orange" mark="◷"><When at={at} /></Badge> : <When at={at} />;
}

/** A grant by its id, beside a list of another page. */
export function GrantDetails({ id }: { id: string }) {
  const grant = useQuery(api.grant(id));
  return grant.data ? <GrantPanel grant={grant.data} /> : <Panel title={visible(id)}><Loaded query={grant}>{() => null}</Loaded></Panel>;
}

function GrantPanel({ grant }: { grant: Grant }) {
  const session = useSession();
  const [revoking, setRevoking] = useState(false);
  const restrict = grant.restrict ? Object.entries(grant.restrict).filter(([, value]) => value !== null && value !== undefined) : [];
  return (
    <Panel title={visible(grant.id)}>
      <Waterfall label="Where the credits of the grant are" steps={[
        { name: "Granted", amount: micros(grant.amount), tone: "green", total: true },
        { name: "Spent", amount: -micros(grant.spent), tone: "blue" }, { name: "Held", amount: -micros(grant.held), tone: "violet" },
        { name: "Expired", amount: -micros(grant.expired), tone: "red" }, { name: "Revoked", amount: -micros(grant.revoked), tone: "slate" },
        { name: "Moved", amount: -micros(grant.moved), tone: "slate" },
        { name: "Left", amount: micros(grant.available), tone: "green", total: true },
      ]} />
      <dl className="facts">
        <dt>Account</dt><dd><AccountLink id={grant.account} /></dd>
        <dt>Kind</dt><dd>{words(grant.kind)}</dd>
        <dt>Effective</dt><dd><When at={grant.effective_at} exact /></dd>
        <dt>Expires</dt><dd>{grant.expires_at ? <When at={grant.expires_at} exact /> : "never"}</dd>
        <dt>Priority</dt><dd>{grant.priority}</dd>
        {restrict.map(([name, value]) => [<dt key={name}>Only {words(name)}</dt>, <dd key={`${name} value`}>{visible(Array.isArray(value) ? value.join(", ") : String(value))}</dd>])}
        {grant.reference ? <><dt>Reference</dt><dd>{visible(grant.reference)}</dd></> : null}
      </dl>
      {may(session, "refund") && !grant.is_revoked && micros(grant.available) > 0n ? <div className="actions"><button type="button" className="button danger" onClick={() => setRevoking(true)}>Revoke grant</button></div> : null}
      {revoking ? <RevokeGrantDialog grant={grant} close={() => setRevoking(false)} /> : null}
    </Panel>
  );
}
