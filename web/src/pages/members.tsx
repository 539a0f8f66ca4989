import { useQuery } from "@tanstack/react-query";
import { api } from "../api/queries";
import type { Cluster } from "../api/reports";
import { may, rolesFor } from "../api/session";
import { formatDuration, millis, visible, words } from "../format";
import { Badge, Stat, Stats, When } from "../ui/basics";
import { useSession } from "../ui/context";
import { Forbidden, Loaded } from "../ui/messages";
import { Page, Section } from "../ui/page";
import { DataTable } from "../ui/table";

export function MembersPage() {
  const session = useSession();
  return may(session, "cluster") ? <Members /> : <Page title="Cluster members"><Forbidden needs={rolesFor("cluster")} /></Page>;
}

export function Members() {
  const paths = useQuery(api.paths());
  const has = paths.data?.has("/v1/cluster");
  const cluster = useQuery({ ...api.cluster(), enabled: has === true, retry: false });
  return (
    <Page title="Cluster members" about="Servers that share the store, and the machines that each owns.">
      {has === false ? <OneServer /> : <Loaded query={cluster}>{(data) => <MemberTables cluster={data} />}</Loaded>}
    </Page>
  );
}

/** The machines of a server that answers for all of them. */
function OneServer() {
  const ready = useQuery(api.readiness());
  return (
    <Loaded query={ready}>
      {({ machines, broken_laws: broken, ready: isReady, set_aside: aside }) => {
        const rows = Object.entries(machines).map(([id, state]) => ({ id, state, aside: aside[id] ?? 0 }));
        return (
          <>
            <Stats label="Server">
              <Stat label="Server" note={isReady ? "answers requests" : "does not answer changes"}><Badge tone={isReady ? "green" : "red"} mark={isReady ? "●" : "?"}>{isReady ? "ready" : "not ready"}</Badge></Stat>
              <Stat label="Machines served" note={`of ${rows.length}`}>{rows.filter(({ state }) => state === "serving").length}</Stat>
              <Stat label="Broken laws" {...(broken > 0 ? { tone: "red" as const } : {})} note="of the ledger, found by its own checks">{broken}</Stat>
            </Stats>
            <p className="muted prose">The server that answers here serves every machine. Others that share its store on PostgreSQL (<code>bursar serve --store postgres://…</code>) wait, and one takes over when its lease ends.</p>
            <Section title="Machines">
              <DataTable label="Machines" rows={rows} rowId={({ id }) => id} columns={[
                { id: "id", header: "Machine", value: ({ id }) => id, cell: ({ id }) => visible(id) },
                { id: "state", header: "State", value: ({ state }) => state, cell: ({ state }) => <Badge tone={state === "serving" ? "green" : "orange"} mark={state === "serving" ? "●" : "◐"}>{words(state)}</Badge> },
                { id: "aside", header: "Set aside", num: true, value: (row) => row.aside, cell: (row) => row.aside },
              ]} />
            </Section>
          </>
        );
      }}
    </Loaded>
  );
}

function MemberTables({ cluster }: { cluster: Cluster }) {
  const lag = Math.max(0, ...cluster.machines.map((machine) => machine.follower_lag_ms ?? 0));
  return (
    <>
      <Stats label="Cluster">
        <Stat label="Active members">{cluster.members.filter(({ state }) => state === "active").length}</Stat>
        <Stat label="Machines with an owner" note={`of ${cluster.machines.length}`}>{cluster.machines.filter(({ owner }) => owner).length}</Stat>
        <Stat label="Largest lag">{formatDuration(lag)}</Stat>
      </Stats>
      <Section title="Members">
        <DataTable label="Members" rows={cluster.members} rowId={({ id }) => id} columns={[
          { id: "id", header: "Member", value: ({ id }) => id, cell: ({ id }) => visible(id) },
          { id: "state", header: "State", cell: ({ state }) => <Badge tone={state === "active" ? "green" : state === "draining" ? "orange" : "red"} mark={state === "active" ? "●" : state === "draining" ? "◐" : "?"}>{words(state)}</Badge> },
          { id: "url", header: "Address", cell: ({ url }) => visible(url) },
          { id: "build", header: "Build", cell: ({ build }) => visible(build) },
          { id: "seen", header: "Seen", num: true, value: ({ seen_at }) => millis(seen_at), cell: ({ seen_at }) => <When at={seen_at} /> },
        ]} />
      </Section>
      <Section title="Machines and leases">
        <DataTable label="Machines" rows={cluster.machines} rowId={({ id }) => id} columns={[
          { id: "id", header: "Machine", value: ({ id }) => id, cell: ({ id }) => visible(id) },
          { id: "owner", header: "Owner", cell: ({ owner }) => visible(owner) || <Badge tone="red" mark="?">none</Badge> },
          { id: "successor", header: "Successor", cell: ({ successor }) => visible(successor) },
          { id: "epoch", header: "Epoch", num: true, value: ({ epoch }) => epoch, cell: ({ epoch }) => epoch },
          { id: "position", header: "Position", num: true, value: ({ position }) => position, cell: ({ position }) => position.toLocaleString("en-US") },
          { id: "lag", header: "Follower lag", unit: "ms", num: true, value: ({ follower_lag_ms }) => follower_lag_ms ?? 0, cell: ({ follower_lag_ms }) => follower_lag_ms ?? "–" },
        ]} />
      </Section>
    </>
  );
}
