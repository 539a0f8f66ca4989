import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api } from "../../api/queries";
import { may } from "../../api/session";
import { micros, visible } from "../../format";
import { Badge, Stat, Stats } from "../../ui/basics";
import { useSession } from "../../ui/context";
import { afterFirst, Loaded } from "../../ui/messages";
import { Section } from "../../ui/page";
import { usePageSearch, useRegion } from "../../ui/search";
import { ClusterStats, MapCut, NodeMap } from "../cluster";
import { QueueTable, RegionChoice } from "../queue";
import { points } from "../share";

/** Lines of the queue on the first page. */
const QUEUE_LINES = 8;

/** The map, GPUs held but idle, the largest gang that fits, share error, members. */
export function OperatorHome() {
  const region = useRegion();
  const nodes = useQuery(api.nodes());
  const queue = useQuery(api.queue(region));
  const here = nodes.data?.filter((node) => node.region === region);
  const map = useQuery(api.map(region));
  const [, change] = usePageSearch();
  const regions = useQuery(api.regions());
  const worst = regions.data?.find(({ id }) => id === region)?.share_error;
  return (
    <>
      <Loaded query={nodes} rows={2}>{() => <ClusterStats nodes={here ?? []} map={map.data} />}</Loaded>
      <Section title="Map" actions={<RegionChoice />}><Loaded query={afterFirst(regions, map)}>{(data) => <><NodeMap nodes={data.nodes} /><MapCut map={data} /></>}</Loaded></Section>
      <Stats label="Sharing">
        <Stat label="Largest share error among waiting" to="/share" note={worst ? visible(worst.account) : "no account waits"}>{worst ? points(micros(worst.difference)) : "–"}</Stat>
        <Stat label="Waiting" tone="violet" to="/queue">{queue.data ? `${queue.data.data.length}${queue.data.has_more ? "+" : ""}` : "–"}</Stat>
        <MembersLine />
      </Stats>
      <Section title="Next in the queue" actions={<Link className="link small" to="/queue">Whole queue</Link>}>
        <Loaded query={afterFirst(regions, queue)}>{(data) => <QueueTable rows={data.data.slice(0, QUEUE_LINES)} open={undefined} onOpen={(entry) => change({ open: entry.job })} />}</Loaded>
      </Section>
    </>
  );
}

function MembersLine() {
  const session = useSession();
  const cluster = useQuery({ ...api.cluster(), enabled: may(session, "cluster"), retry: false });
  if (!cluster.data) return null;
  const active = cluster.data.members.filter(({ state }) => state === "active").length;
  const orphans = cluster.data.machines.filter(({ owner }) => !owner).length;
  return <Stat label="Members" to="/members" note={orphans ? <Badge tone="red">{orphans} machines without owner</Badge> : "every machine has an owner"}>{active}</Stat>;
}
