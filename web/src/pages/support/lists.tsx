import { Link } from "@tanstack/react-router";
import type { AuditRecord, Entry } from "../../api/types";
import { visible, words } from "../../format";
import { AccountLink, Badge, JobLink, When } from "../../ui/basics";
import { Empty } from "../../ui/messages";
import { amountColumn, DataTable } from "../../ui/table";

const More = ({ more }: { more: (() => void) | undefined }) => (more ? <div className="actions"><button type="button" className="button small" onClick={more}>Show earlier ones</button></div> : null);

/** Movements of credits. */
export function EntryList({ entries, more }: { entries: Entry[]; more: (() => void) | undefined }) {
  return (
    <>
      <DataTable label="Movements" rows={entries} rowId={(entry) => entry.id} empty={<Empty>No movement is recorded here.</Empty>} columns={[
        { id: "at", header: "When", value: (entry) => entry.at, cell: (entry) => <When at={entry.at} exact /> },
        { id: "type", header: "Movement", value: (entry) => entry.type, cell: (entry) => words(entry.type) },
        amountColumn("amount", "Amount", entries, (entry) => entry.amount, { unit: "credits" }),
        { id: "spender", header: "By", value: (entry) => entry.spender ?? "", cell: (entry) => (entry.spender ? <AccountLink id={entry.spender} /> : null) },
        { id: "job", header: "Job or hold", cell: (entry) => entry.job ? <JobLink id={entry.job} /> : entry.hold ? <Link to="/support" search={{ q: entry.hold } as never} className="mono">{visible(entry.hold)}</Link> : null },
        { id: "reference", header: "Reference", cell: (entry) => visible(entry.reference), phone: false },
      ]} />
      <More more={more} />
    </>
  );
}

/** Records of the audit trail. */
export function RecordList({ records, more, machine }: { records: AuditRecord[]; more: (() => void) | undefined; machine?: string | undefined }) {
  return (
    <>
      <DataTable label="Records" rows={records} rowId={(record) => `${record.position}.${record.item}`} empty={<Empty>{more ? "None among the newest records." : "No record in your scope."}</Empty>} columns={[
        { id: "position", header: "Position", num: true, value: (record) => record.position, cell: (record) => <Link to="/audit" search={{ ...(machine ? { machine } : {}), position: String(record.position), open: `${record.position}.${record.item}` } as never}>{record.position}</Link> },
        { id: "at", header: "When", value: (record) => record.at, cell: (record) => <When at={record.at} exact /> },
        { id: "actor", header: "Actor", value: (record) => record.actor ?? "", cell: (record) => <span className="mono">{visible(record.actor) || "timer"}</span> },
        { id: "command", header: "Command", value: (record) => record.command ?? "", cell: (record) => words(record.command ?? (record.actor ? record.events[0] ?? "" : "timer")) },
        { id: "outcome", header: "Outcome", cell: (record) => record.refusal ? <Badge tone="red" mark="✕">{words(record.refusal)}</Badge> : <Badge tone="green" mark="✓">accepted</Badge> },
        { id: "events", header: "Events", cell: (record) => <span className="muted">{[...new Set(record.events)].map(words).join(", ")}</span> },
      ]} />
      <More more={more} />
    </>
  );
}
