import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";
import { api } from "../api/queries";
import { read } from "../api/client";
import { may, rolesFor } from "../api/session";
import type { AuditRecord, Proof } from "../api/types";
import { save } from "../charts/twin";
import { count, csv, visible, words } from "../format";
import { AccountLink, Badge, Copy, jobPath, Stat, Stats, When } from "../ui/basics";
import { useSession } from "../ui/context";
import { Empty, Forbidden, ProblemNote } from "../ui/messages";
import { Page, Panel } from "../ui/page";
import { MIN_FOUND, type PageSearch, usePageSearch, useMoreWhileFew } from "../ui/search";
import { DataTable } from "../ui/table";
import { checkCheckpoint, checkProof, proofFile } from "../verify/proof";

const recordId = (record: AuditRecord) => `${record.position}.${record.item}`;

export function AuditPage() {
  const session = useSession();
  return may(session, "audit") ? <Trail /> : <Page title="Audit"><Forbidden needs={rolesFor("audit")} /></Page>;
}

/** What people decide about nodes and jobs in a cell. The rest are reports of nodes, messages of the ledger and timers. */
const BY_PEOPLE = "drain_node,resume_node,remove_node,register_node,preempt_job,plan_maintenance,cancel_maintenance,configure";

const isCell = (machine: string | undefined) => machine?.startsWith("cell-") ?? false;

/** The commands that are asked for: in a cell those of people, unless all are wanted or one record is. */
function commandsOf({ machine, command, position }: PageSearch): string | undefined {
  if (command === "all" || position) return undefined;
  return command ?? (isCell(machine) ? BY_PEOPLE : undefined);
}

const aboutText = (record: AuditRecord) => (record.about ?? []).map(({ type, id }) => `${type} ${id}`).join(", ");

/** What a record is about, with a link where it has a page. */
function About({ record }: { record: AuditRecord }) {
  return (record.about ?? []).map(({ type, id }, i) => (
    <span key={i}>{i > 0 ? ", " : ""}{type === "job" && !id.startsWith("#") ? <Link to={jobPath(id)} className="mono" onClick={(event) => event.stopPropagation()}>{visible(id)}</Link> : type === "account" ? <AccountLink id={id} /> : <>{words(type)} <span className="mono">{visible(id)}</span></>}</span>
  ));
}

function Trail() {
  const [search, change] = usePageSearch();
  const machine = search.machine === "ledger-0" ? undefined : search.machine;
  const query = useInfiniteQuery(api.audit({ machine, account: search.account, job: search.job, after: search.after, position: search.position, actor: search.actor, command: commandsOf(search) }));
  const records = useMemo(() => query.data?.pages.flatMap((page) => page.data), [query.data]);
  const shown = useMemo(() => records?.filter((record) => !search.q || `${record.command ?? ""} ${record.actor ?? ""} ${record.refusal ?? ""} ${aboutText(record)} ${record.events.join(" ")}`.includes(search.q)), [records, search.q]);
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = query;
  const more = useCallback(() => { if (hasNextPage && !isFetchingNextPage) void fetchNextPage(); }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  const isFiltered = search.q !== undefined || search.actor !== undefined || commandsOf(search) !== undefined;
  useMoreWhileFew((isFiltered || machine !== undefined && records?.length === 0) && (shown?.length ?? 0) < MIN_FOUND, query.data?.pages.length ?? 0, more);
  const open = shown?.find((record) => recordId(record) === search.open);
  const exported = () => save("audit.csv", csv([["position", "item", "at", "actor", "command", "refusal", "about", "events"], ...(shown ?? []).map((record) => [String(record.position), String(record.item), record.at, record.actor ?? "", record.command ?? "", record.refusal ?? "", aboutText(record), record.events.join(" ")])]));
  return (
    <Page
      title="Audit" about="Every decision of the ledger, of the cells and of the directory: the command, its actor, its events or its refusal."
      actions={<button type="button" className="button" onClick={exported} disabled={!shown?.length}>Download CSV</button>}
      panel={open ? <RecordPanel record={open} machine={machine} /> : undefined}
    >
      <Verification key={machine ?? ""} records={shown ?? []} machine={machine} />
      <div className="toolbar">
        <MachineChoice machine={machine} choose={(to) => change({ machine: to, position: undefined, after: undefined, open: undefined, command: undefined })} />
        {isCell(machine) && !search.position ? (
          <select aria-label="Which records" value={search.command ?? ""} onChange={(event) => change({ command: event.target.value || undefined })}>
            <option value="">Decisions of people</option>
            <option value="all">Every record</option>
            {search.command && search.command !== "all" ? <option value={search.command}>{search.command.split(",").map(words).join(", ")}</option> : null}
          </select>
        ) : null}
        <input type="search" aria-label="Command, actor or event" placeholder="Command, actor or event" value={search.q ?? ""} onChange={(event) => change({ q: event.target.value || undefined }, true)} />
        <input type="search" aria-label="Job" placeholder="Job id" value={search.job ?? ""} onChange={(event) => change({ job: event.target.value || undefined }, true)} />
        <input type="search" aria-label="After position" placeholder="After position" inputMode="numeric" value={search.after ?? ""} onChange={(event) => change({ after: event.target.value.replace(/\D/g, "") || undefined }, true)} />
        {search.account ? <button type="button" className="button small" onClick={() => change({ account: undefined })}>Only {visible(search.account)} ✕</button> : null}
        {search.position ? <button type="button" className="button small" onClick={() => change({ position: undefined })}>Only record {visible(search.position)} ✕</button> : null}
        {search.actor ? <button type="button" className="button small" onClick={() => change({ actor: undefined })}>Only by {visible(search.actor)} ✕</button> : null}
        <span className="grow" /><span className="muted small">{shown ? count(shown.length, "record") : ""}{hasNextPage ? " so far; more load as you scroll" : ""}</span>
      </div>
      {query.error ? <ProblemNote error={query.error} retry={() => void query.refetch()} /> : null}
      {query.error && !records ? null : <DataTable label="Audit records" rows={shown} rowId={recordId} open={search.open} onOpen={(record) => change({ open: recordId(record) })} onEnd={more} empty={<Empty>No record matches.</Empty>} columns={[
        { id: "position", header: "Position", num: true, value: (record) => record.position, cell: (record) => record.position },
        { id: "at", header: "When", value: (record) => record.at, cell: (record) => <When at={record.at} exact /> },
        { id: "actor", header: "Actor", value: (record) => record.actor ?? "", cell: (record) => record.actor ? <span className="mono">{visible(record.actor)}</span> : <span className="faint">timer</span> },
        { id: "command", header: "Command", value: (record) => record.command ?? "", cell: (record) => commandText(record) },
        ...(machine ? [{ id: "about", header: "About", value: aboutText, cell: (record: AuditRecord) => <About record={record} /> }] : []),
        { id: "outcome", header: "Outcome", cell: (record) => record.refusal ? <Badge tone="red" mark="✕">{words(record.refusal)}</Badge> : <Badge tone="green" mark="✓">accepted</Badge> },
        { id: "events", header: "Events", cell: (record) => <span className="muted">{[...new Set(record.events)].map(words).join(", ")}</span> },
      ]} />}
    </Page>
  );
}

/** The directory stores events, not commands. */
const commandText = (record: AuditRecord) => words(record.command ?? (record.actor ? record.events[0] ?? "" : "timer"));

function MachineChoice({ machine, choose }: { machine: string | undefined; choose: (machine: string | undefined) => void }) {
  const regions = useQuery(api.regions());
  const cells = (regions.data ?? []).map(({ id }) => `cell-${id}`).sort();
  const known = ["", "directory", ...cells];
  return (
    <select aria-label="Machine" value={machine ?? ""} onChange={(event) => choose(event.target.value || undefined)}>
      <option value="">Ledger: credits and jobs</option>
      <option value="directory">Directory: keys and prices</option>
      {cells.map((cell) => <option key={cell} value={cell}>Cell {visible(cell.slice(5))}: nodes and placement</option>)}
      {machine && !known.includes(machine) ? <option value={machine}>{visible(machine)}</option> : null}
    </select>
  );
}

interface Progress {
  /** Records whose checkpoint's signature could not be checked in this browser. */
  unsigned: number;
  done: number;
  all: number;
  wrong: number[];
  error?: Error;
}

/** Records proven in one go. */
const MAX_PROVEN = 200;

/** Checks the signature of the checkpoint and that the records shown are in the journal it signs. */
function Verification({ records, machine }: { records: AuditRecord[]; machine: string | undefined }) {
  const session = useSession();
  const isAllowed = machine === undefined || session.scope === "*";
  const checkpoint = useQuery({ ...api.checkpoint(machine), staleTime: 60_000, enabled: isAllowed });
  const [progress, setProgress] = useState<Progress | null>(null);
  const signature = useQuery({ queryKey: ["signature", checkpoint.data?.signed], enabled: checkpoint.data !== undefined, queryFn: () => checkCheckpoint(checkpoint.data!) });
  const positions = [...new Set(records.map(({ position }) => position))].slice(0, MAX_PROVEN);
  const verify = async () => {
    const now: Progress = { unsigned: 0, done: 0, all: positions.length, wrong: [] };
    setProgress({ ...now });
    try {
      for (const position of positions) {
        const proof = await read<Proof>("/v1/audit/proof", { machine, position });
        const checked = await checkProof(proof);
        if (!checked.isValid) now.wrong.push(position);
        if (!checked.isSigned) now.unsigned += 1;
        now.done += 1;
        setProgress({ ...now });
      }
    } catch (error) {
      setProgress({ ...now, error: error as Error });
    }
  };
  const finished = progress && progress.done === progress.all;
  if (!isAllowed) return <p className="muted small">The journal of {visible(machine)} belongs to the platform: its signature and proofs need the scope *. Shown are the records that are about your scope alone.</p>;
  return (
    <>
      <Stats label="Verification">
        <Stat label="Signed up to position" note={checkpoint.data ? <When at={checkpoint.data.signed_at} /> : undefined}>{checkpoint.data?.size.toLocaleString("en-US") ?? "–"}</Stat>
        <Stat label="Signature" note="checked in this browser">{signature.data === undefined ? "–" : signature.data === "unsupported" ? "not checked here" : signature.data ? <Badge tone="green" mark="✓">valid</Badge> : <Badge tone="red" mark="✕">wrong</Badge>}</Stat>
        <Stat label="Records proven" note={session.scope === "*" ? <button type="button" className="button small" disabled={positions.length === 0 || (progress !== null && !finished && !progress.error)} onClick={() => void verify()}>Verify {count(positions.length, "record")}</button> : "proofs need the scope *"}>
          {progress ? <span role="status">{progress.done} of {progress.all}{progress.wrong.length ? `, ${progress.wrong.length} wrong` : finished && progress.unsigned === 0 ? " ✓" : ""}{progress.unsigned ? "; signature not checked here" : ""}</span> : "–"}
        </Stat>
      </Stats>
      {progress && !finished ? <progress max={progress.all} value={progress.done} aria-label="Verification" /> : null}
      {progress?.error ? <ProblemNote error={progress.error} /> : null}
      {progress?.wrong.length ? <div className="note-box tone-red" role="alert"><strong>These records are not in the signed journal: {progress.wrong.join(", ")}</strong><span>Keep the data as it is and run <code>bursar audit verify</code> on the server.</span></div> : null}
    </>
  );
}

function RecordPanel({ record, machine }: { record: AuditRecord; machine: string | undefined }) {
  const session = useSession();
  const proof = useQuery({ queryKey: ["audit", "proof", machine, record.position], enabled: session.scope === "*", staleTime: Infinity, queryFn: ({ signal }) => read<Proof>("/v1/audit/proof", { machine, position: record.position }, signal) });
  const check = useQuery({ queryKey: ["audit", "check", machine, record.position, proof.data?.checkpoint.size], enabled: proof.data !== undefined, queryFn: () => checkProof(proof.data!) });
  return (
    <Panel title={machine ? `Record ${record.position} of ${visible(machine)}` : `Record ${record.position}`}>
      <dl className="facts">
        <dt>Command</dt><dd>{commandText(record)}</dd>
        {record.about?.length ? <><dt>About</dt><dd><About record={record} /></dd></> : null}
        <dt>Actor</dt><dd className="mono">{visible(record.actor) || "timer"}</dd>
        <dt>When</dt><dd><When at={record.at} exact /></dd>
        <dt>Outcome</dt><dd>{record.refusal ? words(record.refusal) : "accepted"}</dd>
        {record.request_id ? <><dt>Request</dt><dd className="mono">{visible(record.request_id)}<Copy text={record.request_id} label="Copy the request id" /></dd></> : null}
        <dt>Events</dt><dd><ol>{record.events.map((event, i) => <li key={i}>{words(event)}</li>)}</ol></dd>
        {check.data ? <><dt>Hash</dt><dd className="mono">{check.data.leaf}<Copy text={check.data.leaf} /></dd><dt>Proof</dt><dd>{check.data.isValid ? check.data.isSigned ? <Badge tone="green" mark="✓">in the signed journal</Badge> : <Badge tone="orange" mark="?">in the journal; signature not checked here</Badge> : <Badge tone="red" mark="✕">does not match</Badge>}</dd></> : null}
      </dl>
      {proof.data ? <div className="actions"><button type="button" className="button" onClick={() => save(`proof-${machine ? `${machine}-` : ""}${record.position}.json`, JSON.stringify(proofFile(proof.data), null, 2), "application/json")}>Download proof</button></div> : null}
      {proof.error ? <ProblemNote error={proof.error} /> : null}
      {session.scope === "*" ? null : <p className="muted small">Proofs of single records need the scope *.</p>}
    </Panel>
  );
}
