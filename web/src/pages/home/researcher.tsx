import { useQueries } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { SubmitDialog } from "../../actions/submit";
import { api } from "../../api/queries";
import { may } from "../../api/session";
import { useSession } from "../../ui/context";
import { Empty, ProblemNote } from "../../ui/messages";
import { Section } from "../../ui/page";
import { usePageSearch } from "../../ui/search";
import { DataTable } from "../../ui/table";
import { jobColumns, useReasons } from "../jobs/columns";
import { LIVE_STATES } from "../jobs/math";
import { Attention } from "./attention";
import { MoneyLine } from "./money";

/** What runs, what it has cost, why the rest waits, days left. */
export function ResearcherHome({ account }: { account: string }) {
  return <><MoneyLine account={account} /><Attention account={account} /><LiveJobs account={account} /></>;
}

export function LiveJobs({ account }: { account: string }) {
  const session = useSession();
  const [submitting, setSubmitting] = useState(false);
  const [, change] = usePageSearch();
  const results = useQueries({ queries: [...LIVE_STATES].map((state) => api.jobsNow({ ...(account ? { account } : {}), state })) });
  const isReady = results.every((result) => result.data);
  const error = results.find((result) => result.error)?.error;
  const stamp = results.map((result) => result.dataUpdatedAt).join();
  const order = ["running", "starting", "stopping", "queued"];
  const rows = useMemo(() => isReady ? results.flatMap((result) => result.data?.data ?? []).sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state)) : undefined, [stamp, isReady]);
  const reasons = useReasons(rows?.some((job) => job.state === "queued") ?? false);
  const columns = useMemo(() => jobColumns(rows ?? [], reasons), [rows, reasons]);
  return (
    <Section title="Running and waiting" actions={<><Link className="link small" to="/jobs" search={(account ? { account } : {}) as never}>Every job</Link>{may(session, "submit") ? <button type="button" className="button small" onClick={() => setSubmitting(true)}>Submit job</button> : null}</>}>
      {error && !rows ? <ProblemNote error={error} retry={() => { for (const result of results) void result.refetch(); }} /> : <DataTable label="Running and waiting jobs" rows={rows} columns={columns} rowId={(job) => job.id} onOpen={(job) => change({ open: job.id })} empty={<Empty>Nothing runs or waits. Submit a job here, or:<pre>bursar run -a {account || "ACCOUNT"} -g H100:1 -t 1h -- ./train.sh</pre></Empty>} />}
      {results.some((result) => result.data?.has_more) ? <p className="muted small">At most 100 jobs of each state are shown here. <Link className="link" to="/jobs" search={(account ? { account } : {}) as never}>Every job</Link></p> : null}
      {submitting ? <SubmitDialog close={() => setSubmitting(false)} /> : null}
    </Section>
  );
}
