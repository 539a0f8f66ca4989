import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { path, send, type Answer } from "../api/client";
import { api } from "../api/queries";
import type { Budget, Grant, GrantKind } from "../api/types";
import { formatShare, micros, parseAmount, plainAmount, visible } from "../format";
import { Amount } from "../ui/basics";
import { Loaded } from "../ui/messages";
import { useAccount } from "../ui/search";
import { ActionDialog } from "./action";
import { AccountField, AmountField, endOfDay, positive, SelectField, TextField } from "./fields";

const KINDS: GrantKind[] = ["purchase", "grant", "promotion", "compensation"];

export function GrantDialog({ close }: { close: () => void }) {
  const [account, setAccount] = useState(useAccount());
  const [amount, setAmount] = useState("");
  const [kind, setKind] = useState<GrantKind>("purchase");
  const [expires, setExpires] = useState("");
  const [id, setId] = useState("");
  const [reference, setReference] = useState("");
  const wanted = parseAmount(amount);
  const balance = useQuery({ ...api.balance(account), enabled: account !== "" });
  return (
    <ActionDialog
      title="Grant credits" verb="Grant credits" ready={positive(wanted) && account !== ""} close={close}
      run={(key) => send<Grant>("POST", "/v1/grants", {
        idempotencyKey: key,
        body: { account, amount: plainAmount(wanted ?? 0n), kind, ...(expires ? { expires_at: endOfDay(expires) } : {}), ...(id ? { id } : {}), ...(reference ? { reference } : {}) },
      })}
      effect={positive(wanted) ? (
        <Loaded query={balance}>
          {(now) => (
            <ul className="section">
              <li>{visible(account)} has <Amount value={now.available} /> available now, and <strong><Amount value={micros(now.available) + wanted} /></strong> afterwards.</li>
              <li>The account and all below it can spend them{expires ? <> until {expires}, the end of the day in UTC. What is left then expires.</> : "; they do not expire."}</li>
            </ul>
          )}
        </Loaded>
      ) : null}
      done={([answer]) => { const grant = (answer as Answer<Grant>).data; return <span>{visible(grant.id)}: <Amount value={grant.amount} /> credits for {visible(grant.account)}.</span>; }}
    >
      <AccountField value={account} onChange={setAccount} />
      <AmountField label="Amount" text={amount} onChange={setAmount} />
      <SelectField label="Kind" value={kind} choices={KINDS} onChange={setKind} />
      <TextField label="Expires (optional)" type="date" value={expires} onChange={setExpires} hint="The end of that day, in UTC." />
      <TextField label="Your id (optional)" value={id} onChange={setId} />
      <TextField label="Reference (optional)" value={reference} onChange={setReference} hint="An invoice or order number." />
    </ActionDialog>
  );
}

export function BudgetDialog({ budget, close }: { budget?: Budget; close: () => void }) {
  const [account, setAccount] = useState(useAccount());
  const [name, setName] = useState(budget?.name ?? "month");
  const [limit, setLimit] = useState(budget?.limit ?? "");
  const [period, setPeriod] = useState<Budget["period"]>(budget?.period ?? "month");
  const [mode, setMode] = useState<Budget["mode"]>(budget?.mode ?? "hard");
  const where = budget?.account ?? account;
  const wanted = parseAmount(limit);
  const existing = useQuery({ ...api.budgets(where), enabled: where !== "" });
  const now = existing.data?.find((one) => one.name === name);
  return (
    <ActionDialog
      title={budget ? `Change budget ${visible(budget.name)} of ${visible(budget.account)}` : "Set budget"} verb="Set budget" ready={positive(wanted) && name !== ""} close={close}
      run={(key) => send<Budget>("PUT", path`/v1/accounts/${where}/budgets/${name}`, { body: { limit: plainAmount(wanted ?? 0n), period, mode, ...(budget?.unit ? { unit: budget.unit } : {}) }, idempotencyKey: key })}
      effect={positive(wanted) ? <BudgetEffect now={now} limit={wanted} mode={mode} account={where} /> : null}
      done={([answer]) => { const made = (answer as Answer<Budget>).data; return <span>{visible(made.name)} of {visible(made.account)}: <Amount value={made.remaining} /> of <Amount value={made.limit} /> remain.</span>; }}
    >
      {budget ? null : <AccountField value={account} onChange={setAccount} />}
      {budget ? null : <TextField label="Name" value={name} onChange={setName} required />}
      <AmountField label="Limit" text={limit} onChange={setLimit} />
      <SelectField label="Period" value={period} choices={["day", "week", "month", "total"]} onChange={setPeriod} />
      <SelectField label="Mode" value={mode} choices={["hard", "soft"]} onChange={setMode} hint="Hard refuses; soft only warns." />
    </ActionDialog>
  );
}

function BudgetEffect({ now, limit, mode, account }: { now: Budget | undefined; limit: bigint; mode: string; account: string }) {
  const used = now ? micros(now.used) : 0n;
  const over = used > limit;
  return (
    <ul className="section">
      {now ? <li>The limit changes from <Amount value={now.limit} /> to <strong><Amount value={limit} /></strong>. <Amount value={used} /> are used now, {formatShare(used, limit)} of the new limit.</li> : <li>A new limit of <strong><Amount value={limit} /></strong> applies to {visible(account)} and all below it.</li>}
      {over && mode === "hard" ? <li className="text-tone tone-red">More is used than the new limit: new holds are refused until the period ends. Running jobs continue.</li> : null}
      {!over && now ? <li><Amount value={limit - used} /> remain in this period.</li> : null}
      {mode === "soft" ? <li>Nothing is refused; thresholds are reported as events.</li> : null}
    </ul>
  );
}

export function RevokeGrantDialog({ grant, close }: { grant: Grant; close: () => void }) {
  return (
    <ActionDialog
      title={`Revoke ${visible(grant.id)}`} verb="Revoke grant" danger ready close={close}
      run={(key) => send<Grant>("POST", path`/v1/grants/${grant.id}/revoke`, { idempotencyKey: key })}
      effect={<ul className="section"><li><Amount value={grant.available} /> available credits of {visible(grant.account)} end now.</li><li><Amount value={grant.held} /> held credits stay with their jobs; what returns later is revoked as well.</li></ul>}
      done={([answer]) => <span><Amount value={(answer as Answer<Grant>).data.revoked} /> credits revoked.</span>}
    />
  );
}
