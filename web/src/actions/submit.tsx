import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { send, type Answer } from "../api/client";
import { api } from "../api/queries";
import type { Job, Quote, SubmitJob } from "../api/types";
import { parseDuration, visible } from "../format";
import { Amount, jobPath, When } from "../ui/basics";
import { Blockers, Loaded } from "../ui/messages";
import { useAccount } from "../ui/search";
import { amountColumn, DataTable } from "../ui/table";
import { ActionDialog, Field } from "./action";
import { AccountField, DurationField, SelectField, TextField } from "./fields";

/** The quote follows the form after this pause. */
const QUOTE_DELAY = 350;

/** Splits a command line into words, with quotes as in a shell. */
export function splitCommand(text: string): string[] {
  const found = text.match(/"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\]+|\s+/gs) ?? [];
  const words: string[] = [];
  let open = false;
  for (const piece of found) {
    if (/^\s/.test(piece)) { open = false; continue; }
    const plain = piece.startsWith('"') ? piece.slice(1, -1).replace(/\\(["\\$`])/g, "$1") : piece.startsWith("'") ? piece.slice(1, -1) : piece.startsWith("\\") ? piece.slice(1) : piece;
    if (open) words[words.length - 1] += plain;
    else words.push(plain);
    open = true;
  }
  return words;
}

/** Submits a job; the quote follows every change of the form. */
export function SubmitDialog({ close }: { close: () => void }) {
  const start = useAccount();
  const [account, setAccount] = useState(start);
  const [name, setName] = useState("");
  const [types, setTypes] = useState("");
  const [gpus, setGpus] = useState("1");
  const [time, setTime] = useState("1h");
  const [jobClass, setClass] = useState("normal");
  const [command, setCommand] = useState("");
  const classes = useQuery(api.classes());
  const prices = useQuery(api.prices());
  const known = [...new Set((prices.data ?? []).map((price) => price.gpu_type))].sort();
  const seconds = parseDuration(time);
  const body = useMemo((): SubmitJob | undefined => {
    const share = /^0\.\d{1,6}$/.test(gpus);
    const wanted = share ? { share: gpus } : /^[1-9]\d{0,5}$/.test(gpus) ? { count: Number(gpus) } : undefined;
    if (!account || !wanted || seconds === undefined) return undefined;
    const list = types.split(/[\s,]+/).filter(Boolean);
    return {
      account, gpus: { ...wanted, ...(list.length ? { types: list } : {}) }, max_runtime_seconds: seconds, class: jobClass,
      ...(name ? { name } : {}), ...(command ? { command: splitCommand(command) } : {}),
    } as SubmitJob;
  }, [account, gpus, types, seconds, jobClass, name, command]);
  const settled = useSettled(body, QUOTE_DELAY);
  const quote = useQuery({
    queryKey: ["quote", settled],
    enabled: settled !== undefined,
    placeholderData: keepPreviousData,
    queryFn: async ({ signal }) => (await send<Quote>("POST", "/v1/quotes", { body: settled, signal })).data,
    retry: false,
  });
  return (
    <ActionDialog
      title="Submit job" verb="Submit job" close={close}
      ready={body !== undefined && settled === body && quote.data?.admissible === true && !quote.error}
      run={(key) => send<Job>("POST", "/v1/jobs", { body, idempotencyKey: key })}
      effect={settled ? <Loaded query={quote}>{(offer) => <QuoteView quote={offer} />}</Loaded> : null}
      done={([answer]) => { const job = (answer as Answer<Job>).data; return <span><Link className="link" to={jobPath(job.id)}>{visible(job.id)}</Link> waits for a placement; <Amount value={job.hold?.amount} /> credits are held.</span>; }}
    >
      <AccountField value={account} onChange={setAccount} />
      <TextField label="Name (optional)" value={name} onChange={setName} />
      <Field label="GPU types" hint={known.length ? `Any if empty. Known: ${known.map(visible).join(", ")}` : "Any if empty."}><input type="text" value={types} placeholder="H100, A100" onChange={(event) => setTypes(event.target.value)} /></Field>
      <Field label="GPUs" hint="A whole number, or a share such as 0.25."><input type="text" inputMode="decimal" value={gpus} required onChange={(event) => setGpus(event.target.value)} /></Field>
      <DurationField label="Time limit" text={time} onChange={setTime} />
      <SelectField label="Class" value={jobClass} choices={classes.data?.map((one) => one.name) ?? ["normal"]} onChange={setClass} />
      <Field label="Command" span hint="Runs on the node, without a shell unless you name one."><input type="text" className="mono" value={command} placeholder="bash -c './train.sh'" spellCheck={false} onChange={(event) => setCommand(event.target.value)} /></Field>
    </ActionDialog>
  );
}

function QuoteView({ quote }: { quote: Quote }) {
  return (
    <>
      <p>
        {quote.admissible ? <>It may be submitted. A hold of <strong><Amount value={quote.hold} /></strong> credits is placed; <Amount value={quote.spendable_after} /> remain spendable. Unused credits return when it ends.</> : <strong className="text-tone tone-red">It would be refused.</strong>}
      </p>
      <DataTable label="Offers" rows={quote.offers} rowId={(offer) => `${offer.gpu_type} ${offer.region}`} columns={[
        { id: "type", header: "GPU type", cell: (offer) => visible(offer.gpu_type) },
        { id: "region", header: "Region", cell: (offer) => visible(offer.region) },
        amountColumn("hour", "Per hour", quote.offers, (offer) => offer.per_hour, { unit: "credits" }),
        amountColumn("hold", "Hold", quote.offers, (offer) => offer.hold, { unit: "credits" }),
        { id: "start", header: "Estimated start", num: true, cell: (offer) => offer.estimated_start_at ? <When at={offer.estimated_start_at} /> : <span className="faint">unknown</span> },
      ]} />
      {quote.blockers.length ? <><h3>{quote.admissible ? "What it would wait for" : "Why"}</h3><Blockers blockers={quote.blockers} /></> : null}
    </>
  );
}

/** A value that has not changed for a while. */
function useSettled<T>(value: T, delay: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), delay);
    return () => clearTimeout(timer);
  }, [value, delay]);
  return settled;
}
