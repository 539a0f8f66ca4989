import { useQuery } from "@tanstack/react-query";
import { api } from "../../api/queries";
import { formatDay, formatSeconds, micros } from "../../format";
import { Amount, Stat, Stats } from "../../ui/basics";
import { useNow } from "../../ui/context";
import { Loaded } from "../../ui/messages";
import { usePreferences } from "../../ui/preferences";

/** spendable · held · burn per hour · runway with its date */
export function MoneyLine({ account }: { account: string }) {
  const enabled = account !== "";
  const forecast = useQuery({ ...api.forecast(account), enabled });
  const balance = useQuery({ ...api.balance(account), enabled });
  const effective = useQuery({ ...api.effective(account), enabled, retry: false });
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
            <Stat label="Spendable" tone="green" to="/credits" note={micros(data.available) === micros(data.spendable) ? "own credits" : <><Amount value={data.available} /> its own</>}><Amount value={data.spendable} /></Stat>
            <Stat label="Held" tone="violet" note="by open holds"><Amount value={effective.data?.held_by_me ?? data.held} /></Stat>
            <Stat label="Burn per hour" tone="blue" to="/spend" note="recent average"><Amount value={forecast.data?.burn_per_hour} /></Stat>
            <Stat label="Runway" note={end && end < 8.64e15 ? formatDay(end, zone) : undefined}>{!forecast.data ? "–" : runway === null || runway === undefined ? "no end" : formatSeconds(runway)}</Stat>
            {risk > 0n ? <Stat label="At risk of expiring" tone="orange" to="/credits"><Amount value={risk} /></Stat> : null}
          </Stats>
        );
      }}
    </Loaded>
  );
}
