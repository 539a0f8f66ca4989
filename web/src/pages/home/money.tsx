import { useQueries, useQuery } from "@tanstack/react-query";
import { api } from "../../api/queries";
import { formatDay, formatSeconds, micros, sum, type Micros } from "../../format";
import { Amount, Stat, Stats } from "../../ui/basics";
import { useNow } from "../../ui/context";
import { Loaded } from "../../ui/messages";
import { usePreferences } from "../../ui/preferences";

/** Regions whose running jobs are summed. */
const MAX_REGIONS = 8;

/** What the running jobs of an account and all below it cost per hour; `undefined` until it is known. */
function useRateNow(account: string): Micros | undefined {
  const regions = useQuery(api.regions());
  const queues = useQueries({ queries: (regions.data ?? []).slice(0, MAX_REGIONS).map(({ id }) => api.queue(id)) });
  if (!regions.data || regions.data.length > MAX_REGIONS || queues.some(({ data }) => !data)) return undefined;
  return sum(queues.flatMap(({ data }) => data?.shares ?? []).filter((share) => share.account === account).map((share) => micros(share.per_hour)));
}

/** spendable · held · burn per hour · runway with its date */
export function MoneyLine({ account }: { account: string }) {
  const enabled = account !== "";
  const forecast = useQuery({ ...api.forecast(account), enabled });
  const balance = useQuery({ ...api.balance(account), enabled });
  const effective = useQuery({ ...api.effective(account), enabled, retry: false });
  const rate = useRateNow(account);
  const now = useNow(60_000);
  const { zone } = usePreferences();
  return (
    <Loaded query={balance} rows={2}>
      {(data) => {
        const runway = forecast.data?.runway_seconds;
        const end = runway === null || runway === undefined ? undefined : now + runway * 1000;
        const risk = micros(forecast.data?.at_risk);
        return (
          <Stats label="Credits">
            <Stat label="Spendable" tone="green" to="/credits" note={micros(data.available) === micros(data.spendable) ? "own credits" : <><Amount value={data.available} /> own, the rest from accounts above</>}><Amount value={data.spendable} /></Stat>
            <Stat label="Held" tone="violet" to="/jobs" note="by open holds"><Amount value={effective.data?.held_by_me ?? data.held} /></Stat>
            <Stat label="Burn per hour" tone="blue" to="/spend" note={<>average of 24 h{rate ? <>; now <Amount value={rate} /></> : null}</>}><Amount value={forecast.data?.burn_per_hour} /></Stat>
            <Stat label="Runway" to="/credits" note={<>{end && end < 8.64e15 ? `to ${formatDay(end, zone)} at that average` : null}{rate ? <><br />{formatSeconds(Number((micros(data.spendable) * 3600n) / rate))} at the present rate</> : null}</>}>{!forecast.data ? "–" : runway === null || runway === undefined ? "no end" : formatSeconds(runway)}</Stat>
            {risk > 0n ? <Stat label="At risk of expiring" tone="orange" to="/credits"><Amount value={risk} /></Stat> : null}
          </Stats>
        );
      }}
    </Loaded>
  );
}
