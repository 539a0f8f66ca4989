import type { Job } from "../../api/types";

/** Quotes a word for a POSIX shell. */
export function quote(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** The command line that submits the same job. */
export function jobCommand({ spec }: Job): string {
  const types = (spec.gpus.types as string[] | null | undefined)?.join(",") ?? "";
  const gpus = spec.gpus.share !== null && spec.gpus.share !== undefined ? String(spec.gpus.share) : String(spec.gpus.count ?? 1);
  const words = ["bursar", "run", "-a", spec.account, "-g", types ? `${types}:${gpus}` : gpus];
  if (spec.max_runtime_seconds) words.push("-t", `${spec.max_runtime_seconds}s`);
  if (spec.name) words.push("--name", spec.name);
  if (spec.class && spec.class !== "normal") words.push("--class", spec.class);
  const command = spec.command as string[] | null | undefined;
  if (command?.length) words.push("--", ...command);
  return words.map(quote).join(" ");
}

/** The request that submits the same job. */
export function jobCurl({ spec }: Job, origin: string): string {
  const body = { ...spec, id: undefined };
  return `curl -X POST ${origin}/v1/jobs -H "Authorization: Bearer $BURSAR_KEY" -H 'Content-Type: application/json' \\\n  -d ${quote(JSON.stringify(body))}`;
}
