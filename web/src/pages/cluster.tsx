import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { DrainDialog } from "../actions/admin";
import { api } from "../api/queries";
import type { MapGpu, MapNode, RegionMap } from "../api/reports";
import { may } from "../api/session";
import type { MachineNode } from "../api/types";
import { count, formatAmount, formatShare, micros, millis, sum, visible } from "../format";
import { Id, jobPath, NodeBadge, Stat, Stats, When } from "../ui/basics";
import { useSession } from "../ui/context";
import { afterFirst, Empty, FirstOnly, Loaded } from "../ui/messages";
import { Page, Panel, Section } from "../ui/page";
import { usePageSearch, useRegion } from "../ui/search";
import { amountColumn, DataTable } from "../ui/table";
import { useTableView, ViewSwitch } from "../charts/twin";
import { largestGang, mayDrain, usage } from "./clustermath";
import { RegionChoice } from "./queue";
import { RegionChart } from "./regionchart";

/** GPUs kept for a job that does not use them yet or any more. */
const isIdle = (gpu: MapGpu) => gpu.used.some(({ running }) => !running);

export function ClusterPage() {
  const region = useRegion();
  const [search, change] = usePageSearch();
  const nodes = useQuery(api.nodes());
  const regions = useQuery(api.regions());
  const here = useMemo(() => nodes.data?.filter((node) => node.region === region), [nodes.data, region]);
  const map = useQuery(api.map(region));
  const asTable = useTableView();
  const open = here?.find(({ id }) => id === search.open);
  return (
    <Page title="Cluster" about={region ? `Region ${visible(region)}` : undefined} actions={<RegionChoice />} panel={open ? <NodePanel node={open} map={map.data?.nodes.find(({ id }) => id === open.id)} /> : undefined}>
      {here ? <ClusterStats nodes={here} map={map.data} /> : null}
      <Section title="Nodes and GPUs" actions={<><MapLegend /><ViewSwitch /></>}>
        <Loaded query={afterFirst(regions, map)}>{(data) => <>{asTable ? <GpuTable nodes={data.nodes} /> : <NodeMap nodes={data.nodes} />}<MapCut map={data} /></>}</Loaded>
      </Section>
      <RegionChart region={region} />
      <Section title="Nodes">
        <Loaded query={nodes}>{() => <NodeTable rows={here} open={search.open} onOpen={(node) => change({ open: node.id })} />}</Loaded>
        <FirstOnly of={[api.nodes()]} what="nodes" />
      </Section>
    </Page>
  );
}

export function ClusterStats({ nodes, map }: { nodes: MachineNode[]; map: RegionMap | undefined }) {
  const now = usage(nodes);
  const gang = map && largestGang(map);
  const held = (map?.nodes ?? []).flatMap(({ gpus }) => gpus).filter(isIdle).length;
  return (
    <Stats label="Cluster">
      <Stat label="GPUs allocated" tone="blue" to="/jobs" search={{ state: "running" }} note={`of ${count(now.usable, "usable GPU")}, ${formatShare(now.allocated, BigInt(now.usable) * 1_000_000n)}`}>{formatAmount(now.allocated)}</Stat>
      <Stat label="Largest gang that fits now" to="/cluster" note={gang ? `${visible(gang.type)}, ${gang.nodes} × ${gang.gpus_per_node}` : "no free GPU on a ready node"}>{gang?.gpus ?? 0}</Stat>
      <Stat label="Fragmentation" to="/cluster" note="free parts of shared GPUs">{formatAmount(now.splintered)}</Stat>
      <Stat label="Held but idle" to="/cluster" tone="orange" note="kept for jobs that start or stop">{held}</Stat>
      <Stat label="Nodes ready" to="/cluster" note={`of ${nodes.length}`}>{nodes.filter(({ state }) => state === "ready").length}</Stat>
    </Stats>
  );
}

/** Says that the map has more nodes than are drawn. */
export const MapCut = ({ map }: { map: RegionMap }) => (map.has_more ? <p className="muted small" role="note">The first {map.nodes.length.toLocaleString("en-US")} nodes are drawn. All: <code>bursar node ls --region {visible(map.region)}</code></p> : null);

const MapLegend = () => (
  <ul className="legend">
    <li><i className="key tone-blue" />in use</li><li><i className="key tone-orange hatch" />held, idle</li><li><i className="key tone-slate" />other tenants</li><li><i className="key" style={{ background: "transparent", border: "1px solid var(--line-strong)" }} />free</li>
  </ul>
);

export function NodeMap({ nodes }: { nodes: MapNode[] }) {
  const racks = [...new Set(nodes.map(({ rack }) => rack ?? ""))].sort();
  if (nodes.length === 0) return <Empty>No node is registered in this region. An agent registers one:<pre>bursar agent --server {location.origin} --key-file agent.key</pre></Empty>;
  return (
    <div className="map">
      {racks.map((rack) => (
        <div key={rack} className="map">
          {rack ? <h3>Rack {visible(rack)}</h3> : null}
          {nodes.filter((node) => (node.rack ?? "") === rack).map((node) => (
            <div className="map-node" key={node.id}>
              <span className="row"><Link to="." search={((old: object) => ({ ...old, open: node.id })) as never} className="nowrap">{visible(node.id)}</Link><NodeBadge state={node.state} /></span>
              <div className="gpus">{node.gpus.map((gpu, i) => <GpuCell key={gpu.uuid} gpu={gpu} place={i} off={node.state !== "ready" && node.state !== "draining"} />)}</div>
            </div>
          ))}
        </div>
      ))}
    </div>
  );
}

const shareOf = (gpu: MapGpu) => sum(gpu.used.map(({ share }) => micros(share)));

function GpuCell({ gpu, place, off }: { gpu: MapGpu; place: number; off: boolean }) {
  const used = shareOf(gpu);
  const job = gpu.used.find((use) => use.job !== "other")?.job;
  const idle = isIdle(gpu);
  const owner = gpu.used[0]?.account;
  const tone = idle ? "orange" : job ? "blue" : "slate";
  const text = used === 0n ? "free" : owner ? (owner === "other" ? "other" : (visible(owner).split(":").at(-1) ?? "")) : "used";
  const title = `GPU ${place}, ${visible(gpu.type)}, ${visible(gpu.uuid)}\n${used === 0n ? "free" : gpu.used.map((use) => `${visible(use.job)} of ${visible(use.account)}: ${formatAmount(use.share)}`).join("\n")}${idle ? "\nheld, not in use" : ""}`;
  const body = <>{used > 0n ? <i className={idle ? "hatch" : ""} style={{ height: `${Number(used > 1_000_000n ? 1_000_000n : used) / 10_000}%` }} /> : null}<span>{text}</span></>;
  const name = `gpu tone-${tone}${used === 0n ? " free" : ""}${off ? " off" : ""}`;
  return job ? <Link className={name} title={title} aria-label={title} to={jobPath(job)}>{body}</Link> : <span className={name} title={title}>{body}</span>;
}

function GpuTable({ nodes }: { nodes: MapNode[] }) {
  const rows = nodes.flatMap((node) => node.gpus.map((gpu, place) => ({ node, gpu, place })));
  return (
    <DataTable label="GPUs, as a table" rows={rows} rowId={(row) => `${row.node.id} ${row.gpu.uuid}`} columns={[
      { id: "node", header: "Node", value: (row) => row.node.id, cell: (row) => visible(row.node.id) },
      { id: "state", header: "State", cell: (row) => <NodeBadge state={row.node.state} /> },
      { id: "place", header: "GPU", num: true, cell: (row) => row.place },
      { id: "type", header: "Type", value: (row) => row.gpu.type, cell: (row) => visible(row.gpu.type) },
      amountColumn("used", "Used", rows, (row) => shareOf(row.gpu)),
      { id: "jobs", header: "Jobs", cell: (row) => row.gpu.used.map((use, i) => use.job && use.job !== "other" ? <Link key={i} to={jobPath(use.job)} className="mono">{visible(use.job)} </Link> : <span key={i}>{visible(use.account) || "in use"} </span>) },
    ]} />
  );
}

export function NodeTable({ rows, open, onOpen }: { rows: MachineNode[] | undefined; open?: string | undefined; onOpen: (node: MachineNode) => void }) {
  const used = (node: MachineNode) => sum(node.gpus.map((gpu) => micros(gpu.used)));
  return (
    <DataTable label="Nodes" rows={rows} rowId={(node) => node.id} open={open} onOpen={onOpen} empty={<Empty>No node is registered here.</Empty>} columns={[
      { id: "id", header: "Node", value: (node) => node.id, cell: (node) => <Id id={node.id} /> },
      { id: "state", header: "State", value: (node) => node.state, cell: (node) => <NodeBadge state={node.state} /> },
      { id: "gpus", header: "GPUs", value: (node) => node.gpus.length, cell: (node) => `${node.gpus.length} × ${[...new Set(node.gpus.map(({ type }) => visible(type)))].join(", ")}` },
      amountColumn("used", "Used", rows ?? [], used),
      { id: "attempts", header: "Attempts", num: true, value: (node) => node.attempts.length, cell: (node) => node.attempts.length },
      { id: "cpus", header: "CPUs", num: true, value: (node) => node.cpus, cell: (node) => node.cpus },
      { id: "memory", header: "Memory", unit: "GiB", num: true, value: (node) => node.memory_gib, cell: (node) => node.memory_gib.toLocaleString("en-US") },
      { id: "rack", header: "Rack", value: (node) => node.rack ?? "", cell: (node) => visible(node.rack) },
      { id: "lease", header: "Lease ends", num: true, value: (node) => millis(node.lease_until), cell: (node) => <When at={node.lease_until} /> },
    ]} />
  );
}

function NodePanel({ node, map }: { node: MachineNode; map: MapNode | undefined }) {
  const session = useSession();
  const [drain, setDrain] = useState(false);
  const jobs = [...new Set((map?.gpus ?? []).flatMap((gpu) => gpu.used.map(({ job }) => job)))].filter((job): job is string => !!job && job !== "other");
  const resume = node.state === "draining" || node.state === "drained";
  return (
    <Panel title={visible(node.id)}>
      <dl className="facts">
        <dt>State</dt><dd><NodeBadge state={node.state} /></dd>
        <dt>GPUs</dt><dd>{node.gpus.map((gpu) => `${visible(gpu.type)} ${gpu.memory_gib} GiB`).filter((text, i, all) => all.indexOf(text) === i).join(", ")}, {node.gpus.length} in all</dd>
        <dt>Serves</dt><dd>{visible(node.scope)}</dd>
        <dt>Incarnation</dt><dd>{node.incarnation}</dd>
        <dt>Lease ends</dt><dd><When at={node.lease_until} /></dd>
        {Object.entries(node.labels ?? {}).map(([name, value]) => [<dt key={name}>{visible(name)}</dt>, <dd key={`${name} value`}>{visible(String(value))}</dd>])}
      </dl>
      <h3>Jobs</h3>
      {jobs.length ? <ul className="section">{jobs.map((job) => <li key={job}><Id id={job} to={jobPath(job)} /></li>)}</ul> : <p className="muted">No job of yours runs on it.</p>}
      {mayDrain(session, node) ? <div className="actions"><button type="button" className={resume ? "button" : "button danger"} onClick={() => setDrain(true)}>{resume ? "Resume node" : "Drain node"}</button></div> : may(session, "drain") ? <p className="muted small">It also runs jobs of accounts outside your scope: the platform drains it.</p> : null}
      {drain ? <DrainDialog node={node} close={() => setDrain(false)} /> : null}
    </Panel>
  );
}
