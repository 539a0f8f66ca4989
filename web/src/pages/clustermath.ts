import { may, type Session } from "../api/session";
import type { MachineNode } from "../api/types";
import type { RegionMap } from "../api/reports";
import { micros } from "../format";

const WHOLE = 1_000_000n;

export type Gang = RegionMap["largest_gang"][number];

/** The largest gang of any GPU type that fits now. */
export function largestGang({ largest_gang: gangs }: Pick<RegionMap, "largest_gang">): Gang | undefined {
  return gangs.filter(({ gpus }) => gpus > 0).reduce<Gang | undefined>((best, gang) => (!best || gang.gpus > best.gpus ? gang : best), undefined);
}

/** Whether the caller drains a node: its scope has every account whose jobs the node may run. */
export function mayDrain(session: Session, { scope }: Pick<MachineNode, "scope">): boolean {
  if (!may(session, "drain")) return false;
  return session.scope === "*" || scope === session.scope || (scope ?? "*").startsWith(`${session.scope}:`);
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
