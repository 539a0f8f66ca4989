import { useQuery } from "@tanstack/react-query";
import { useEffect, useState, type FormEvent } from "react";
import { api } from "../../api/queries";
import type { Found } from "../../api/reports";
import { millis, visible, words } from "../../format";
import { AccountLink, Id, jobPath, When } from "../../ui/basics";
import { Empty, Loaded } from "../../ui/messages";
import { Page } from "../../ui/page";
import { usePageSearch } from "../../ui/search";
import { DataTable } from "../../ui/table";
import { Story } from "./story";

/** One search box; what is found is shown as one timeline of money and placement. */
export function SupportPage() {
  const [search, change] = usePageSearch();
  const [text, setText] = useState(search.q ?? "");
  useEffect(() => setText(search.q ?? ""), [search.q]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    change({ q: text.trim() || undefined, open: undefined });
  };
  return (
    <Page title="Support" about="A job, hold, grant, charge, account, request or key, by id or name.">
      <form role="search" className="toolbar" onSubmit={submit}>
        <input type="search" aria-label="Id or name" placeholder="job_…, hold_…, req_…, key_…, or a name" value={text} onChange={(event) => setText(event.target.value)} style={{ width: 420 }} autoFocus />
        <button className="button primary" type="submit">Search</button>
      </form>
      {search.q ? <Results q={search.q} /> : <Empty>Search for any id. Ids are in every answer of the API, in error messages (request id) and in <code>bursar ls</code>.</Empty>}
    </Page>
  );
}

const foundId = (found: Found) => `${found.kind} ${found.id}${found.machine ? ` ${found.machine}` : ""}${found.position ? ` ${found.position}` : ""}`;

function Results({ q }: { q: string }) {
  const [search, change] = usePageSearch();
  const query = useQuery(api.search(q));
  const rows = query.data?.data;
  const chosen = rows?.find((found) => foundId(found) === search.open) ?? (rows?.length === 1 ? rows[0] : rows?.find(({ exact, kind }) => exact || kind === "request"));
  return (
    <>
        <Loaded query={query}>
          {({ data, truncated }) => (
            <>
            <DataTable label="Found" rows={data} rowId={foundId} open={chosen ? foundId(chosen) : undefined} onOpen={(found) => change({ open: foundId(found) })} empty={<Empty>Nothing in your scope has this id or name.</Empty>} columns={[
              { id: "kind", header: "Kind", value: (found) => found.kind, cell: (found) => words(found.kind) },
              { id: "id", header: "Id", value: (found) => found.id, cell: (found) => <Id id={found.id} to={found.kind === "job" ? jobPath(found.id) : undefined} /> },
              ...(data.some(({ name }) => name) ? [{ id: "name", header: "Name", cell: (found: Found) => visible(found.name) }] : []),
              { id: "account", header: "Account", cell: (found) => found.account ? <AccountLink id={found.account} /> : null },
              ...(data.some(({ at }) => at) ? [{ id: "at", header: "Made", num: true, value: (found: Found) => millis(found.at), cell: (found: Found) => <When at={found.at} /> }] : []),
            ]} />
            {truncated ? <p className="muted small">There are more: write more of the id or name.</p> : null}
            </>
          )}
        </Loaded>
      {chosen ? <Story found={chosen} /> : null}
    </>
  );
}
