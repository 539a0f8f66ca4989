import type { Api } from "./api";

interface Running {
  id: string;
  startedAt: number;
  gpus: number;
  endsAt: number;
  exitCode: number;
  state: "running" | "succeeded" | "failed" | "stopped";
  endedAt?: number;
  log: string;
}

export interface NodeShape {
  id: string;
  region: string;
  rack: string;
  type: string;
  gpus: number;
  memory: number;
  labels?: Record<string, string>;
}

/** Nodes whose agents are these calls: a test decides when a job starts, reports and ends. */
export class Fleet {
  private nodes = new Map<string, { shape: NodeShape; incarnation: number; seq: number; attempts: Map<string, Running> }>();
  /** How long a job runs, in ms, and its exit code; by default an hour. */
  plan: (spec: any) => [number, number] = () => [3_600_000, 0];

  constructor(private readonly api: Api) {}

  async register(shape: NodeShape) {
    const gpus = Array.from({ length: shape.gpus }, (_, i) => ({ uuid: `GPU-${shape.id}-${i}`, type: shape.type, memory_gib: shape.memory }));
    const made = await this.api.post("/v1/nodes", { id: shape.id, region: shape.region, rack: shape.rack, gpus, cpus: 128, memory_gib: 1024, ...(shape.labels ? { labels: shape.labels } : {}) });
    this.nodes.set(shape.id, { shape, incarnation: made.incarnation, seq: 0, attempts: new Map() });
  }

  /** Every agent reports once, and does what it is asked. */
  async beat(now: number) {
    for (const id of this.nodes.keys()) await this.beatNode(id, now);
  }

  async beatNode(id: string, now: number) {
    const node = this.nodes.get(id);
    if (!node) throw new Error(`no node ${id}`);
    for (const attempt of node.attempts.values()) {
      if (attempt.state === "running" && now >= attempt.endsAt) {
        attempt.state = attempt.exitCode === 0 ? "succeeded" : "failed";
        attempt.endedAt = attempt.endsAt;
      }
    }
    node.seq += 1;
    const attempts = [...node.attempts.values()].map((attempt) => ({
      id: attempt.id, state: attempt.state, gpu_ms_total: Math.round(((attempt.endedAt ?? now) - attempt.startedAt) * attempt.gpus),
      ...(attempt.state === "succeeded" || attempt.state === "failed" ? { exit_code: attempt.exitCode, log_tail: attempt.log } : {}),
    }));
    const { orders } = await this.api.post(`/v1/nodes/${id}/heartbeat`, { incarnation: node.incarnation, seq: node.seq, attempts });
    for (const order of orders) this.obey(node.attempts, order, now);
  }

  private obey(attempts: Map<string, Running>, order: any, now: number) {
    const known = attempts.get(order.attempt);
    if (order.type === "forget") attempts.delete(order.attempt);
    else if (order.type === "start" && !known) {
      const [length, exitCode] = this.plan(order.spec);
      const gpus = order.spec.share ? Number(order.spec.share) : order.gpus.length;
      attempts.set(order.attempt, { id: order.attempt, startedAt: now, gpus, endsAt: now + length, exitCode, state: "running", log: `${order.spec.name ?? "job"}: ended\n` });
    } else if (order.type !== "start" && known?.state === "running") {
      known.state = "stopped";
      known.endedAt = now;
    }
  }
}
