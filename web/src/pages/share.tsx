import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api } from "../api/queries";
import type { ShareEntry } from "../api/types";
import { Diverging } from "../charts/bars";
import { formatAmount, maxMicros, micros, sum, visible, type Micros } from "../format";
import { AccountLink, Amount, Stat, Stats } from "../ui/basics";
import { afterFirst, Empty, Loaded } from "../ui/messages";
import { Page } from "../ui/page";
import { useRegion } from "../ui/search";
import { amountColumn, DataTable } from "../ui/table";
import { RegionChoice } from "./queue";

/** A share from 0 to 1 as percent with one decimal. */
export const percent = (share: Micros): string => `${formatAmount((share * 1000n / 1_000_000n) * 100_000n)} %`;

export const shareGap = (entry: ShareEntry): Micros => micros(entry.received) - micros(entry.entitled);

/** The largest distance between actual and entitled among accounts that compete. */
export function shareError(shares: ShareEntry[]): ShareEntry | undefined {
  const size = (entry: ShareEntry) => { const gap = shareGap(entry); return gap < 0n ? -gap : gap; };
  return shares.filter((entry) => entry.waiting_jobs > 0).reduce<ShareEntry | undefined>((most, entry) => (!most || size(entry) > size(most) ? entry : most), undefined);
}

/** What all accounts of the list spend per hour. An account includes those below it. */
export function spendingNow(shares: ShareEntry[]): Micros {
  const all = new Set(shares.map(({ account }) => account));
  const isInAnother = (account: string) => account.split(":").some((_, i, parts) => i > 0 && all.has(parts.slice(0, i).join(":")));
  return sum(shares.filter(({ account }) => !isInAnother(account)).map((entry) => micros(entry.per_hour)));
}

/** A difference of shares in percentage points, with its sign. */
export const points = (gap: Micros): string => `${gap > 0n ? "+" : ""}${percent(gap).replace(" %", "")} points`;

export function SharePage() {
  const region = useRegion();
  const queue = useQuery(api.queue(region));
  const regions = useQuery(api.regions());
  return (
    <Page title="Fair share" about="What each account has received of the region, against its entitlement while it and its siblings compete. Recent usage counts more." actions={<RegionChoice />}>
      <Loaded query={afterFirst(regions, queue)} rows={6}>
        {({ shares }) => {
          const worst = shareError(shares);
          return (
            <>
              <Stats label="Fair share">
                <Stat label="Largest share error among waiting" note={worst ? visible(worst.account) : "no account waits"}>{worst ? points(shareGap(worst)) : "–"}</Stat>
                <Stat label="Accounts with jobs" tone="blue" to="/jobs">{shares.filter((entry) => entry.running_jobs + entry.waiting_jobs > 0).length}</Stat>
                <Stat label="Spending" note="credits per hour"><Amount value={spendingNow(shares)} /></Stat>
              </Stats>
              <ShareTable shares={shares} />
            </>
          );
        }}
      </Loaded>
    </Page>
  );
}

const depth = (account: string) => account.split(":").length - 1;

export function ShareTable({ shares }: { shares: ShareEntry[] }) {
  const rows = useMemo(() => [...shares].sort((a, b) => (a.account < b.account ? -1 : 1)), [shares]);
  const most = maxMicros(rows.map((entry) => { const gap = shareGap(entry); return gap < 0n ? -gap : gap; })) || 1n;
  return (
    <DataTable label="Fair share" rows={rows} rowId={(entry) => entry.account} empty={<Empty>No account has used this region.</Empty>} columns={[
      { id: "account", header: "Account", value: (entry) => entry.account, cell: (entry) => <span style={{ paddingLeft: 16 * depth(entry.account) }}><AccountLink id={entry.account} page="/jobs" /></span> },
      amountColumn("weight", "Weight", rows, (entry) => entry.weight),
      { id: "entitled", header: "Entitled", num: true, value: (entry) => micros(entry.entitled), cell: (entry) => percent(micros(entry.entitled)) },
      { id: "received", header: "Received", num: true, value: (entry) => micros(entry.received), cell: (entry) => percent(micros(entry.received)) },
      { id: "gap", header: "Less · more than entitled", value: shareGap, cell: (entry) => <Diverging value={shareGap(entry)} most={most} label={`${points(shareGap(entry))} against its entitlement`} /> },
      { id: "diff", header: "Difference", num: true, value: shareGap, cell: (entry) => points(shareGap(entry)) },
      amountColumn("gpus", "GPUs now", rows, (entry) => entry.gpus),
      amountColumn("hour", "Per hour", rows, (entry) => entry.per_hour, { unit: "credits" }),
      { id: "running", header: "Running", num: true, value: (entry) => entry.running_jobs, cell: (entry) => entry.running_jobs },
      { id: "waiting", header: "Waiting", num: true, value: (entry) => entry.waiting_jobs, cell: (entry) => entry.waiting_jobs },
    ]} />
  );
}
