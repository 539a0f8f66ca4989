import type { Job } from "../../api/types";

type Spec = Job["spec"];

/** Quotes a word for a POSIX shell. */
export function quote(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

const pairs = (option: string, values: Record<string, unknown> | null | undefined) => Object.entries(values ?? {}).flatMap(([name, value]) => [option, `${name}=${String(value)}`]);

function gpus({ gpus: wanted }: Spec): string {
  const types = (wanted.types as string[] | null | undefined)?.join(",") ?? "";
  const many = wanted.share !== null && wanted.share !== undefined ? String(wanted.share) : String(wanted.count ?? 1);
  return types ? `${types}:${many}` : many;
}

/** An option and its value; nothing where the spec does not say it. */
const given = (option: string, value: string | number | boolean | null | undefined, unit = "") => (value === null || value === undefined || value === "" ? [] : [option, `${value}${unit}`]);

/** Options by the fields of a spec. A field without one here does not compile. */
const OPTIONS: { [Field in keyof Required<Spec>]: (spec: Spec) => string[] } = {
  account: (spec) => ["-a", spec.account],
  gpus: (spec) => ["-g", gpus(spec), ...given("--gpu-memory", spec.gpus.memory_gib)],
  max_runtime_seconds: (spec) => given("-t", spec.max_runtime_seconds, "s"),
  name: (spec) => given("--name", spec.name),
  class: (spec) => (spec.class === "normal" ? [] : given("--class", spec.class)),
  nodes: (spec) => (spec.nodes === 1 ? [] : given("--nodes", spec.nodes)),
  cpus: (spec) => (spec.cpus === 0 ? [] : given("--cpus", spec.cpus)),
  memory_gib: (spec) => (spec.memory_gib === 0 ? [] : given("--memory", spec.memory_gib)),
  node_labels: (spec) => pairs("--node-label", spec.node_labels),
  regions: (spec) => given("--region", (spec.regions as string[] | null | undefined)?.join(",")),
  external: (spec) => (spec.external ? ["--external"] : []),
  preemptible: (spec) => given("--preemptible", spec.preemptible),
  resumable: (spec) => (spec.resumable ? ["--resumable"] : []),
  grace_seconds: (spec) => given("--grace", spec.grace_seconds, "s"),
  reserve: (spec) => (spec.reserve === "full" ? [] : given("--reserve", spec.reserve)),
  on_exhausted: (spec) => (spec.on_exhausted === "stop" ? [] : given("--on-exhausted", spec.on_exhausted)),
  warn_ahead_seconds: (spec) => given("--warn-ahead", spec.warn_ahead_seconds, "s"),
  concurrency_group: ({ concurrency_group: group }) => (group ? ["--group", `${group.name}=${group.limit}`] : []),
  array: (spec) => given("--array", spec.array),
  after: (spec) => ((spec.after as string[] | null | undefined) ?? []).flatMap((job) => ["--after", job]),
  max_requeues: (spec) => given("--max-requeues", spec.max_requeues),
  env: (spec) => pairs("-e", spec.env),
  workdir: (spec) => given("--workdir", spec.workdir),
  labels: (spec) => pairs("-l", spec.labels),
  // A new job has an id of its own.
  id: () => [],
  command: ({ command }) => (command?.length ? ["--", ...(command as string[])] : []),
};

/** The command line that submits the same job. */
export function jobCommand({ spec }: Pick<Job, "spec">): string {
  return ["bursar", "run", ...Object.values(OPTIONS).flatMap((option) => option(spec))].map(quote).join(" ");
}

/** The request that submits the same job. */
export function jobCurl({ spec }: Pick<Job, "spec">, origin: string): string {
  const body = { ...spec, id: undefined };
  return `curl -X POST ${origin}/v1/jobs -H "Authorization: Bearer $BURSAR_KEY" -H 'Content-Type: application/json' \\\n  -d ${quote(JSON.stringify(body))}`;
}
