import { useQuery } from "@tanstack/react-query";
import { api } from "../api/queries";
import type { Cluster, Machine, Readiness } from "../api/reports";
import { may, rolesFor } from "../api/session";
import { formatDuration, millis, visible, words } from "../format";
import { Badge, Stat, Stats, When, type Tone } from "../ui/basics";
import { useSession } from "../ui/context";
import { Forbidden, Loaded, type Read } from "../ui/messages";
import { Page, Section } from "../ui/page";
import { DataTable, type TableColumn } from "../ui/table";

export function MembersPage() {
  const session = useSession();
  return may(session, "cluster") ? <Members /> : <Page title="Cluster members"><Forbidden needs={rolesFor("cluster")} /></Page>;
}

const MEMBER_STATES: Record<string, [Tone, string]> = { active: ["green", "●"], draining: ["orange", "◐"], gone: ["red", "?"] };

function Members() {
  const cluster = useQuery(api.cluster());
  const ready = useQuery(api.readiness());
  // One picture: the tables do not gain columns a moment later.
  const both: Read<Cluster> = ready.isPending ? { ...cluster, data: undefined } : cluster;
  return (
    <Page title="Cluster members" about="Servers that share the store, and the machines that each owns.">
      <Loaded query={both}>{(data) => <MemberTables cluster={data} ready={ready.data} />}</Loaded>
    </Page>
  );
}

/** What the server that answers says of a machine; another member says nothing. */
function stateOf(machine: Machine, ready: Readiness | undefined): string | undefined {
  return ready?.machines[machine.id] ?? ready?.machines[machine.id.replace(/-0$/, "")];
}

function MemberTables({ cluster, ready }: { cluster: Cluster; ready: Readiness | undefined }) {
  const { members, machines } = cluster;
  const lags = machines.map(({ follower_lag_ms: lag }) => lag).filter((lag) => typeof lag === "number");
  const broken = ready?.broken_laws;
  const aside = Object.values(ready?.set_aside ?? {}).reduce((sum, count) => sum + count, 0);
  return (
    <>
      <Stats label="Cluster">
        <Stat label="Active members" note={`of ${members.length}`}>{members.filter(({ state }) => state === "active").length}</Stat>
        <Stat label="Machines with an owner" note={`of ${machines.length}`}>{machines.filter(({ owner }) => owner).length}</Stat>
        {ready ? <Stat label="Server that answers" note={ready.ready ? "takes requests" : "does not take changes"}><Badge tone={ready.ready ? "green" : "red"} mark={ready.ready ? "●" : "?"}>{ready.ready ? "ready" : "not ready"}</Badge></Stat> : null}
        {broken === undefined ? null : <Stat label="Broken laws" {...(broken > 0 ? { tone: "red" as const } : {})} note="of the ledger, found by its own checks">{broken}</Stat>}
        {aside > 0 ? <Stat label="Set aside" tone="red" note="timers and messages that failed three times">{aside}</Stat> : null}
        {lags.length ? <Stat label="Largest lag">{formatDuration(Math.max(...lags))}</Stat> : null}
      </Stats>
      {members.length === 1 ? <p className="muted prose">This server runs alone and owns every machine. Several servers share a store on PostgreSQL (<code>bursar serve --store postgres://…</code>): any of them answers, and another takes over when the owner ends.</p> : null}
      <Section title="Members">
        <DataTable label="Members" rows={members} rowId={({ id }) => id} columns={[
          { id: "id", header: "Member", value: ({ id }) => id, cell: ({ id }) => visible(id) },
          { id: "state", header: "State", value: ({ state }) => state, cell: ({ state }) => <Badge tone={(MEMBER_STATES[state] ?? ["slate"])[0]} mark={MEMBER_STATES[state]?.[1] ?? "·"}>{words(state)}</Badge> },
          { id: "owns", header: "Owns", value: ({ id }) => owned(machines, id), cell: ({ id }) => owned(machines, id) || <span className="muted">nothing, stands by</span> },
          { id: "url", header: "Address", cell: ({ url }) => visible(url) },
          { id: "build", header: "Build", cell: ({ build }) => visible(build) },
          { id: "seen", header: "Seen", num: true, value: ({ seen_at }) => millis(seen_at), cell: ({ seen_at }) => <When at={seen_at} /> },
        ]} />
      </Section>
      <Section title="Machines and leases">
        <DataTable label="Machines" rows={machines} rowId={({ id }) => id} columns={machineColumns(cluster, ready)} />
      </Section>
    </>
  );
}

/** The machines of a member, by name. */
function owned(machines: Machine[], member: string): string {
  return machines.filter(({ owner }) => owner === member).map(({ id }) => visible(id)).join(", ");
}

function machineColumns({ machines }: Cluster, ready: Readiness | undefined): TableColumn<Machine>[] {
  // Columns in which no machine has anything are left out.
  const state: TableColumn<Machine> = {
    id: "state", header: "State", value: (row) => stateOf(row, ready),
    cell: (row) => {
      const says = stateOf(row, ready);
      return says ? <Badge tone={says === "serving" ? "green" : "orange"} mark={says === "serving" ? "●" : "◐"}>{words(says)}</Badge> : "–";
    },
  };
  const successor: TableColumn<Machine> = { id: "successor", header: "Successor", value: (row) => row.successor ?? "", cell: (row) => visible(row.successor) || "–" };
  const lag: TableColumn<Machine> = { id: "lag", header: "Follower lag", unit: "ms", num: true, value: (row) => row.follower_lag_ms ?? 0, cell: (row) => row.follower_lag_ms ?? "–" };
  return [
    { id: "id", header: "Machine", value: ({ id }) => id, cell: ({ id }) => visible(id) },
    ...(machines.some((machine) => stateOf(machine, ready)) ? [state] : []),
    { id: "owner", header: "Owner", value: ({ owner }) => owner ?? "", cell: ({ owner }) => visible(owner) || <Badge tone="red" mark="?">none</Badge> },
    ...(machines.some((machine) => machine.successor) ? [successor] : []),
    { id: "epoch", header: "Epoch", num: true, value: ({ epoch }) => epoch, cell: ({ epoch }) => epoch },
    { id: "position", header: "Position", num: true, value: ({ position }) => position, cell: ({ position }) => position.toLocaleString("en-US") },
    ...(machines.some((machine) => typeof machine.follower_lag_ms === "number") ? [lag] : []),
  ];
}
