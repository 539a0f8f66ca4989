import { useInfiniteQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";
import { CancelManyDialog } from "../../actions/cancel";
import { SubmitDialog } from "../../actions/submit";
import { api } from "../../api/queries";
import { may } from "../../api/session";
import type { JobState } from "../../api/types";
import { count, visible } from "../../format";
import { stateWord } from "../../ui/basics";
import { useSession } from "../../ui/context";
import { Empty, ProblemNote } from "../../ui/messages";
import { Page } from "../../ui/page";
import { MIN_FOUND, useAccountFilter, useMoreWhileFew, usePageSearch } from "../../ui/search";
import { DataTable } from "../../ui/table";
import { jobColumns, useReasons } from "./columns";
import { hasText } from "./math";
import { JobPanel } from "./panel";

const STATES: JobState[] = ["running", "queued", "starting", "stopping", "succeeded", "failed", "cancelled", "timed_out", "out_of_credits", "lost"];

export function JobsPage() {
  const session = useSession();
  const [search, change] = usePageSearch();
  const account = useAccountFilter();
  const [dialog, setDialog] = useState<"submit" | "cancel" | null>(null);
  const filter = { account, state: search.state as JobState | undefined, label: search.label };
  const query = useInfiniteQuery(api.jobs(filter));
  const jobs = useMemo(() => query.data?.pages.flatMap((page) => page.data), [query.data]);
  const shown = useMemo(() => (search.q && jobs ? jobs.filter((job) => hasText(job, search.q ?? "")) : jobs), [jobs, search.q]);
  const reasons = useReasons(shown?.some((job) => job.state === "queued") ?? false);
  const columns = useMemo(() => jobColumns(shown ?? [], reasons), [shown, reasons]);
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = query;
  const more = useCallback(() => { if (hasNextPage && !isFetchingNextPage) void fetchNextPage(); }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  useMoreWhileFew(search.q !== undefined && (shown?.length ?? 0) < MIN_FOUND, query.data?.pages.length ?? 0, more);
  return (
    <Page
      title="Jobs"
      about={jobs ? `${count(shown?.length ?? 0, "job")}${hasNextPage ? " so far; more load as you scroll" : ""}` : query.error ? undefined : "Loading"}
      actions={
        <>
          {may(session, "cancel") ? <button type="button" className="button" onClick={() => setDialog("cancel")}>Cancel jobs by filter</button> : null}
          {may(session, "submit") ? <button type="button" className="button primary" onClick={() => setDialog("submit")}>Submit job</button> : null}
        </>
      }
      panel={search.open ? <JobPanel id={search.open} /> : undefined}
    >
      <div className="toolbar">
        <select aria-label="State" value={search.state ?? ""} onChange={(event) => change({ state: event.target.value || undefined })}>
          <option value="">Every state</option>
          {STATES.map((state) => <option key={state} value={state}>{stateWord(state)}</option>)}
        </select>
        <input type="search" aria-label="Filter by name, id, account or label" placeholder="Filter by name, id or account" value={search.q ?? ""} onChange={(event) => change({ q: event.target.value || undefined }, true)} />
        <input type="search" aria-label="Label" placeholder="Label, such as team=nlp" value={search.label ?? ""} onChange={(event) => change({ label: event.target.value || undefined }, true)} />
        {account ? <button type="button" className="button small" onClick={() => change({ account: undefined })}>Only {visible(account)} ✕</button> : null}
      </div>
      {query.error ? <ProblemNote error={query.error} retry={() => void query.refetch()} /> : null}
      {query.error && !jobs ? null : <DataTable
        label="Jobs" rows={shown} columns={columns} rowId={(job) => job.id} open={search.open} onOpen={(job) => change({ open: job.id })} onEnd={more}
        empty={<Empty>No job matches. Jobs appear here once they are submitted:<pre>bursar run -a {account ?? "ACCOUNT"} -g H100:1 -t 1h -- ./train.sh</pre></Empty>}
      />}
      {dialog === "submit" ? <SubmitDialog close={() => setDialog(null)} /> : null}
      {dialog === "cancel" ? <CancelManyDialog filter={filter} text={search.q} close={() => setDialog(null)} /> : null}
    </Page>
  );
}
