import type { MachineNode } from "../api/types";
import { micros } from "../format";

const WHOLE = 1_000_000n;

export interface Gang {
  type: string;
  gpus: number;
  node: string;
}

/** The most free whole GPUs of one type on one ready node: the largest gang that fits on a node now. */
export function largestGang(nodes: MachineNode[]): Gang | undefined {
  let best: Gang | undefined;
  for (const node of nodes) {
    if (node.state !== "ready") continue;
    const free = new Map<string, number>();
    for (const gpu of node.gpus) if (micros(gpu.used) === 0n) free.set(gpu.type, (free.get(gpu.type) ?? 0) + 1);
    for (const [type, gpus] of free) if (!best || gpus > best.gpus) best = { type, gpus, node: node.id };
  }
  return best;
}

export interface Usage {
  total: number;
  /** GPUs of nodes that take jobs or run some. */
  usable: number;
  allocated: bigint;
  /** Free parts of GPUs that a whole-GPU job cannot use. */
  splintered: bigint;
}

export function usage(nodes: MachineNode[]): Usage {
  const found: Usage = { total: 0, usable: 0, allocated: 0n, splintered: 0n };
  for (const node of nodes) {
    for (const gpu of node.gpus) {
      const used = micros(gpu.used);
      found.total += 1;
      if (node.state === "ready") found.usable += 1;
      found.allocated += used;
      if (used > 0n && used < WHOLE) found.splintered += WHOLE - used;
    }
  }
  return found;
}
