import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { serverNow } from "../api/client";
import { api } from "../api/queries";
import type { Spend, SpendSeries } from "../api/reports";
import type { Forecast } from "../api/types";
import { ChartWithTwin, save } from "../charts/twin";
import type { ChartSeries } from "../charts/timechart";
import { csv, formatShare, micros, millis, rfc3339, visible, words } from "../format";
import { AccountLink, Amount, JobLink, Stat, Stats } from "../ui/basics";
import { Empty, Loaded } from "../ui/messages";
import { Choice, Page, Section } from "../ui/page";
import { AccountPage } from "../ui/noaccount";
import { useAccount, usePageSearch } from "../ui/search";
import { amountColumn, DataTable } from "../ui/table";

const DAY = 86_400_000;
const RANGES = { day: [1, "hour", "24 h"], week: [7, "day", "7 d"], month: [30, "day", "30 d"], quarter: [91, "week", "13 weeks"], year: [365, "month", "12 months"] } as const;
type Range = keyof typeof RANGES;
const GROUPS = [["subtree", "Team"], ["account", "Account"], ["gpu_type", "GPU type"], ["class", "Class"], ["region", "Region"], ["job", "Job"]] as const;
/** Areas of the chart; the server sums the rest. */
const SERIES = 8;

export const SpendPage = () => <AccountPage title="Spend">{() => <SpendView />}</AccountPage>;

function SpendView() {
  const account = useAccount();
  const [search, change] = usePageSearch();
  const range = useRange(account, search.interval);
  const by = search.by ?? "subtree";
  const label = by.startsWith("label:") ? by.slice(6) : "";
  const [days, interval] = RANGES[range];
  // Whole minutes, so that the address of the request stays the same for a while.
  const to = useMemo(() => Math.ceil(serverNow() / 60_000) * 60_000, [account, range, by]);
  const from = to - days * DAY;
  const query = { interval, by, k: SERIES };
  const now = useQuery({ ...api.spend(account, { ...query, from: rfc3339(from), to: rfc3339(to) }), enabled: account !== "" });
  const before = useQuery({ ...api.spend(account, { interval, by: "none", from: rfc3339(from - days * DAY), to: rfc3339(from) }), enabled: account !== "" });
  const forecast = useQuery({ ...api.forecast(account), enabled: account !== "" });
  return (
    <Page
      title="Spend" about={<>Captured spend of {visible(account)} and all below it, by time of use</>}
      actions={<Choice label="Range" value={range} choices={(Object.keys(RANGES) as Range[]).map((name) => [name, RANGES[name][2]] as const)} onChange={(value) => change({ interval: value })} />}
    >
      <Loaded query={now} rows={8}>
        {(spend) => (
          <>
            <SpendStats spend={spend} before={before.data} forecast={forecast.data} name={RANGES[range][2]} />
            <div className="toolbar">
              <Choice label="Group by" value={label ? "label" : by} choices={[...GROUPS, ["label", "Label"]] as [string, string][]} onChange={(value) => change({ by: value === "label" ? "label:team" : value })} />
              {by.startsWith("label:") ? <input type="text" aria-label="Label name" value={label} placeholder="Label" onChange={(event) => change({ by: `label:${event.target.value}` }, true)} /> : null}
            </div>
            <SpendChart spend={spend} account={account} />
            <SpendTable spend={spend} by={by} account={account} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** The range of the address; else a month, or a day where nothing was spent before it. */
function useRange(account: string, chosen: string | undefined): Range {
  const isChosen = chosen !== undefined && chosen in RANGES;
  const now = useMemo(() => Math.ceil(serverNow() / 3_600_000) * 3_600_000, [account]);
  const days = useQuery({ ...api.spend(account, { interval: "day", by: "none", from: rfc3339(now - 30 * DAY), to: rfc3339(now) }), enabled: account !== "" && !isChosen });
  if (isChosen) return chosen as Range;
  return days.data && days.data.points.slice(0, -2).every((point) => micros(point.amount) === 0n) ? "day" : "month";
}

function SpendStats({ spend, before, forecast, name }: { spend: Spend; before: Spend | undefined; forecast: Forecast | undefined; name: string }) {
  const total = micros(spend.total);
  const earlier = before ? micros(before.total) : undefined;
  return (
    <Stats label="Spend">
      <Stat label={`Spent in ${name}`} tone="blue"><Amount value={total} /></Stat>
      <Stat label={`The ${name} before`} note={earlier ? `${total >= earlier ? "+" : "−"}${formatShare(total >= earlier ? total - earlier : earlier - total, earlier)}` : earlier === 0n ? "nothing to compare with" : undefined}><Amount value={earlier} /></Stat>
      <Stat label="This month so far"><Amount value={forecast?.month_spent} /></Stat>
      <Stat label="Projected month end" note="at the average of 24 h"><Amount value={forecast?.month_projected} /></Stat>
    </Stats>
  );
}

interface Part extends SpendSeries {
  name: string;
  isOther: boolean;
}

/** The groups, and the rest as one. */
export function spendParts(spend: Spend): Part[] {
  const groups = spend.series.map((one): Part => ({ ...one, name: visible(one.key) || "none", isOther: false }));
  if (micros(spend.other) === 0n) return groups;
  return [...groups, { key: null, total: spend.other, points: spend.other_points, name: "all others", isOther: true }];
}

export function spendChart(spend: Spend): { at: number[]; series: ChartSeries[] } {
  const all = spendParts(spend);
  const times = [...new Set(all.flatMap((one) => one.points.map((point) => millis(point.at) ?? 0)))].sort((a, b) => a - b);
  const series = all.map((one, i): ChartSeries => {
    const values = new Map(one.points.map((point) => [millis(point.at) ?? 0, micros(point.amount)]));
    return { name: one.name, tone: one.isOther ? "slate" : "blue", ...(one.isOther ? {} : { shade: [i, Math.max(all.length, 2)] as [number, number] }), area: true, step: true, values: times.map((at) => values.get(at) ?? 0n) };
  });
  return { at: times, series };
}

/** The end of the last period: as long as the one before it. */
const stepEnd = (at: number[]) => (at.length > 1 ? 2 * (at.at(-1) ?? 0) - (at.at(-2) ?? 0) : undefined);

function SpendChart({ spend, account }: { spend: Spend; account: string }) {
  const { at, series } = useMemo(() => spendChart(spend), [spend]);
  if (at.length === 0) return <Empty>Nothing was spent in this time.</Empty>;
  return <ChartWithTwin title={`Spend by ${spend.interval}`} unit="credits" at={at} series={series} end={stepEnd(at)} file={`spend-${account}.csv`} />;
}

function SpendTable({ spend, by, account }: { spend: Spend; by: string; account: string }) {
  const rows = spendParts(spend);
  const total = micros(spend.total);
  const file = () => save(`spend-by-${by.replace(":", "-")}-${account}.csv`, csv([[by, "credits"], ...rows.map((row) => [row.name, row.total]), ["total", spend.total]]));
  return (
    <Section title={`Spend by ${by === "subtree" ? "team" : words(by.replace("label:", "label "))}`} unit="sum of the range" actions={<button type="button" className="button small" onClick={file}>Download CSV</button>}>
      <DataTable label="Spend" rows={rows} rowId={(row) => row.name} empty={<Empty>Nothing was spent in this time.</Empty>} columns={[
        { id: "key", header: by === "subtree" ? "Team" : words(by.replace("label:", "")), value: (row) => row.name, cell: (row) => row.key && (by === "account" || by === "subtree") ? <AccountLink id={row.key} page="/spend" /> : row.key && by === "job" ? <JobLink id={row.key} /> : row.name, foot: "Total" },
        amountColumn("total", "Spent", rows, (row) => row.total, { unit: "credits", foot: <Amount value={total} /> }),
        { id: "share", header: "Share", num: true, value: (row) => micros(row.total), cell: (row) => formatShare(micros(row.total), total), foot: "" },
      ]} />
    </Section>
  );
}
