import type { Attempt, Job } from "../../api/types";
import { micros, sum, type Micros } from "../../format";

/** Work in progress, and work that has ended. */
export const LIVE_STATES = ["queued", "starting", "running", "stopping"] as const;
export const isLive = (job: Pick<Job, "state">) => (LIVE_STATES as readonly string[]).includes(job.state);

/** Whether a text is in the id, name, account or a label of a job. */
export function hasText(job: Pick<Job, "id" | "account" | "spec">, text: string): boolean {
  const labels = Object.entries(job.spec.labels ?? {}).map(([name, value]) => `${name}=${String(value)}`).join(" ");
  return `${job.id} ${job.spec.name ?? ""} ${job.account} ${labels}`.toLowerCase().includes(text.toLowerCase());
}

/** The attempt that runs, if one does. */
export const currentAttempt = (job: Job): Attempt | undefined => job.attempts.find((attempt) => !attempt.ended_at);

/** GPUs of a job, with shares as micros of one GPU: `4`, `0.25`. */
export function gpuMicros(job: Pick<Job, "spec">): Micros {
  const { gpus, nodes } = job.spec;
  const each = gpus.share !== null && gpus.share !== undefined ? micros(gpus.share) : BigInt(gpus.count ?? 1) * 1_000_000n;
  return each * BigInt(nodes ?? 1);
}

/** Credits per hour of the running attempt. */
export function ratePerHour(job: Job): Micros {
  const attempt = currentAttempt(job);
  return attempt?.started_at ? (micros(attempt.per_gpu_hour) * gpuMicros(job)) / 1_000_000n : 0n;
}

/** What it costs if it runs to its time limit: what was charged before, and the whole present hold. */
export function projectedCost(job: Job): Micros {
  if (!isLive(job) || !job.hold) return micros(job.charged);
  const before = sum(job.attempts.filter((attempt) => attempt.hold !== job.hold?.id).map((attempt) => micros(attempt.charged)));
  return before + micros(job.hold.amount);
}

/** What the hold still keeps. */
export function holdLeft(job: Job): Micros {
  return isLive(job) && job.hold ? micros(job.hold.amount) - micros(job.hold.captured) : 0n;
}

export const gpuTypes = (job: Pick<Job, "spec">): string => (job.spec.gpus.types as string[] | null | undefined)?.join(", ") ?? "any";
