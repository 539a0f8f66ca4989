import { Api } from "./api";
import { Fleet } from "./fleet";

/** The time at which the seeded history ends. */
export const NOW = Date.parse("2026-11-17T14:30:00Z");
const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const HISTORY = 18 * DAY;
const STEP = 3 * HOUR;

/** Numbers from 0 to 1, the same in every run. */
function dice(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const ACCOUNTS = [
  ["acme", "org", "Acme Research"], ["acme:nlp", "team", "Language"], ["acme:nlp:pretrain", "project", "Pretraining"], ["acme:nlp:chat", "project", "Chat"],
  ["acme:vision", "team", "Vision"], ["acme:vision:seg", "project", "Segmentation"],
  ["umbra", "org", "Umbra Robotics"], ["umbra:control", "team", "Control"], ["umbra:mapping", "team", "Mapping"],
] as const;

export const NODES = [
  { id: "eu-h100-1", region: "eu", rack: "a1", type: "H100", gpus: 8, memory: 80 },
  { id: "eu-h100-2", region: "eu", rack: "a1", type: "H100", gpus: 8, memory: 80 },
  { id: "eu-a100-1", region: "eu", rack: "a2", type: "A100", gpus: 8, memory: 80 },
  { id: "us-l40s-1", region: "us", rack: "b1", type: "L40S", gpus: 8, memory: 48 },
];

interface Work {
  account: string;
  name: string;
  gpus: object;
  class?: string;
  hours: number;
  exit?: number;
  labels?: Record<string, string>;
}

const WORK: Work[] = [
  { account: "acme:nlp:pretrain", name: "pretrain-7b", gpus: { types: ["H100"], count: 8 }, hours: 16, labels: { model: "7b" } },
  { account: "acme:nlp:chat", name: "finetune-chat", gpus: { types: ["H100", "A100"], count: 2 }, hours: 5, labels: { model: "chat" } },
  { account: "acme:nlp:chat", name: "serve-eval", gpus: { types: ["L40S"], share: "0.25" }, hours: 8 },
  { account: "acme:vision:seg", name: "segment-city", gpus: { types: ["A100"], count: 4 }, hours: 7, labels: { model: "seg" } },
  { account: "acme:vision", name: "augment", gpus: { types: ["L40S"], count: 2 }, class: "batch", hours: 4, exit: 1 },
  { account: "umbra:control", name: "sweep-gait", gpus: { types: ["A100", "L40S"], count: 2 }, class: "batch", hours: 6 },
  { account: "umbra:mapping", name: "slam-large", gpus: { types: ["H100"], count: 4 }, hours: 9 },
];

async function openAccounts(api: Api) {
  for (const [type, price] of [["H100", "2.5"], ["A100", "1.6"], ["L40S", "0.85"]]) await api.put(`/v1/prices/${type}`, { per_gpu_hour: price });
  for (const [id, kind, name] of ACCOUNTS) await api.post("/v1/accounts", { id, kind, name });
  const at = (days: number) => new Date(NOW + days * DAY).toISOString();
  for (const grant of [
    { id: "acme-2026-q4", account: "acme", amount: "9000", kind: "purchase", reference: "PO-4711" },
    { id: "acme-spring", account: "acme", amount: "400", kind: "promotion", expires_at: at(-4) },
    { id: "nlp-welcome", account: "acme:nlp", amount: "4600", kind: "promotion", expires_at: at(9.3) },
    { id: "nlp-compensation", account: "acme:nlp", amount: "350", kind: "compensation", expires_at: at(24) },
    { id: "vision-h100", account: "acme:vision", amount: "600", kind: "promotion", expires_at: at(3.2), restrict: { gpu_types: ["H100"] } },
    { id: "umbra-2026", account: "umbra", amount: "5200", kind: "purchase" },
    { id: "mapping-seed", account: "umbra:mapping", amount: "240", kind: "grant", expires_at: at(12) },
  ]) await api.post("/v1/grants", grant);
  for (const [account, name, limit, period, mode] of [
    ["acme", "month", "9000", "month", "hard"], ["acme:nlp", "week", "1200", "week", "hard"], ["acme:vision", "day", "60", "day", "hard"],
    ["acme:nlp:chat", "month", "900", "month", "soft"], ["umbra", "month", "4000", "month", "hard"],
  ]) await api.put(`/v1/accounts/${account}/budgets/${name}`, { limit, period, mode });
  await api.put("/v1/accounts/umbra/quota", { gpus: { "*": 12 } });
}

export interface World {
  url: string;
  root: string;
  keys: Record<string, string>;
}

/** Eighteen days of two organisations on four nodes, with work in progress at the end. */
export async function seed(url: string, root: string, isHostile = true): Promise<World> {
  const api = new Api(url, root);
  await api.post("/v1/clock", { now: new Date(NOW - HISTORY).toISOString() });
  await openAccounts(api);
  const fleet = new Fleet(api);
  const roll = dice(7);
  fleet.plan = (spec) => {
    const work = WORK.find(({ name }) => name === spec.name);
    return [(work?.hours ?? 2) * HOUR * (0.5 + 0.45 * roll()), work?.exit ?? 0];
  };
  for (const node of NODES) await fleet.register(node);
  for (let now = NOW - HISTORY; now < NOW - STEP; now = await api.advance(STEP / 1000)) {
    for (let i = 0; i < 2; i++) if (roll() < 0.72) await submit(api, WORK[Math.floor(roll() * WORK.length)] as Work);
    await fleet.beat(now);
    await fleet.beat(now);
  }
  await present(api, fleet);
  if (isHostile) await hostile(api);
  return { url, root, keys: await makeKeys(api, isHostile) };
}

export async function submit(api: Api, work: Work): Promise<string | undefined> {
  const { status, body } = await api.call("POST", "/v1/jobs", {
    account: work.account, name: work.name, gpus: work.gpus, class: work.class ?? "normal", max_runtime_seconds: Math.round(work.hours * 3600),
    command: ["bash", "-c", `./${work.name}.sh --resume`], ...(work.labels ? { labels: work.labels } : {}),
  });
  if (status === 201) return body.id as string;
  if (status === 402) return undefined;
  throw new Error(`${status} ${JSON.stringify(body)}`);
}

/** The last hours: work that runs, waits, failed and was refunded. */
async function present(api: Api, fleet: Fleet) {
  let now = NOW - STEP;
  for (const work of [WORK[0], WORK[1], WORK[3], WORK[6], WORK[4], WORK[2], WORK[0], WORK[1], WORK[6]]) await submit(api, work as Work);
  for (let i = 0; i < 5; i++) {
    await fleet.beat(now);
    now = await api.advance(STEP / 5000);
  }
  await fleet.beat(now);
  await submit(api, { account: "acme:nlp:pretrain", name: "ablation-a", gpus: { types: ["H100"], count: 4 }, hours: 4 });
  await submit(api, { account: "acme:vision:seg", name: "segment-night", gpus: { types: ["A100"], count: 8 }, hours: 3 });
  const failed = await api.get("/v1/jobs?state=failed&limit=1");
  if (failed.data[0]) await api.post("/v1/refunds", { job: failed.data[0].id, amount: "0.5", id: "refund-demo" });
  await fleet.beat(now);
}

/** Text that must stay text, in every field that takes some. */
export const HOSTILE = `<img src=x onerror="window.__pwned=1"><script>window.__pwned=1</script>'"&\u202e{{7*7}}`;

async function hostile(api: Api) {
  await api.post("/v1/accounts", { id: "mallory", kind: "org", name: HOSTILE, metadata: { note: HOSTILE } });
  await api.post("/v1/grants", { id: "mallory-1", account: "mallory", amount: "500", kind: "promotion", reference: HOSTILE, metadata: { note: HOSTILE }, expires_at: new Date(NOW + 5 * DAY).toISOString() });
  await api.put("/v1/accounts/mallory/budgets/month", { limit: "1000", period: "month", mode: "hard" });
  await api.post("/v1/keys", { role: "viewer", scope: "mallory", name: HOSTILE });
  await api.post("/v1/holds", { id: "mallory-hold", account: "mallory", amount: "1", reference: HOSTILE });
  await api.put("/v1/prices/T1000", { per_gpu_hour: "1" });
  const fleet = new Fleet(api);
  fleet.plan = () => [1000, 1];
  await fleet.register({ id: "us-mallory-1", region: "us", rack: "m", type: "T1000", gpus: 1, memory: 8, labels: { note: HOSTILE } });
  // It runs, so that it has output: the output has its name.
  await api.post("/v1/jobs", {
    id: "mallory-job", account: "mallory", name: HOSTILE, gpus: { types: ["T1000"], count: 1 }, max_runtime_seconds: 3600, labels: { note: HOSTILE }, env: { NOTE: HOSTILE },
    command: ["bash", "-c", HOSTILE], workdir: `/${HOSTILE}`,
  });
  let now = await api.advance(1);
  for (let i = 0; i < 3; i++) {
    await fleet.beat(now);
    now = await api.advance(2);
  }
}

async function makeKeys(api: Api, isHostile: boolean): Promise<Record<string, string>> {
  const keys: Record<string, string> = {};
  for (const [name, role, scope] of [
    ["acme-admin", "admin", "acme"], ["acme-submitter", "submitter", "acme:nlp"], ["acme-billing", "billing", "acme"], ["acme-viewer", "viewer", "acme"], ["acme-auditor", "auditor", "acme"],
    ["umbra-admin", "admin", "umbra"], ["operator", "operator", "*"],
    ...(isHostile ? [["mallory-admin", "admin", "mallory"]] : []),
  ]) keys[name as string] = await api.makeKey(role as string, scope as string);
  return keys;
}
