import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { TestProject } from "vitest/node";
import { Api } from "./api";
import { seed, type World } from "./world";

declare module "vitest" {
  interface ProvidedContext {
    world: World;
  }
}

export const BINARY = process.env.BURSAR_BIN ?? resolve("../target/debug/bursar");
const START_TIMEOUT = 60_000;

/** Starts `bursar serve` with a clock that tests move, and waits until it listens. */
export async function startServer(folder: string, more: string[] = []): Promise<{ process: ChildProcess; url: string }> {
  if (!existsSync(BINARY)) throw new Error(`no binary at ${BINARY}: run cargo build --bin bursar, or set BURSAR_BIN`);
  const config = join(folder, "bursar.toml");
  if (!existsSync(config)) writeFileSync(config, "heartbeat_seconds = 3600\nnode_lease_seconds = 864000\n");
  const child = spawn(BINARY, [
    "serve", ...(more.includes("--listen") ? [] : ["--listen", "127.0.0.1:0"]), "--data", join(folder, "data"), "--root-key-file", join(folder, "root.key"),
    "--clock", "manual", "--region", "eu", "--region", "us", "--config", config, ...more,
  ], { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, BURSAR_WEB_DIST: resolve("dist") } });
  let errors = "";
  child.stderr.on("data", (chunk: Buffer) => { errors = (errors + chunk.toString()).slice(-4000); });
  const url = await new Promise<string>((done, fail) => {
    let text = "";
    const timer = setTimeout(() => fail(new Error(`the server did not start: ${errors}`)), START_TIMEOUT);
    child.stdout.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      const found = /listening on (http:\S+)/.exec(text);
      if (found?.[1]) { clearTimeout(timer); done(found[1]); }
    });
    child.on("exit", (code) => { clearTimeout(timer); fail(new Error(`the server ended with ${code}: ${errors}`)); });
  });
  return { process: child, url };
}

export interface OwnServer {
  url: string;
  api: Api;
  process: ChildProcess;
  /** Ends the server and removes its data. */
  close: () => Promise<void>;
}

/** A server of one test alone. `config` are lines of its configuration. */
export async function ownServer(config?: string): Promise<OwnServer> {
  const folder = mkdtempSync(join(tmpdir(), "bursar-web-"));
  if (config) writeFileSync(join(folder, "bursar.toml"), config);
  const { process: child, url } = await startServer(folder);
  const api = new Api(url, readFileSync(join(folder, "root.key"), "utf8").trim());
  const close = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      const ended = new Promise((done) => child.on("exit", done));
      child.kill("SIGTERM");
      await ended;
    }
    rmSync(folder, { recursive: true, force: true });
  };
  return { url, api, process: child, close };
}

export default async function setup(project: TestProject) {
  if (!existsSync("dist/index.html")) throw new Error("build the dashboard first: npm run build");
  const folder = mkdtempSync(join(tmpdir(), "bursar-web-"));
  const { process: child, url } = await startServer(folder);
  const started = Date.now();
  // Pictures are for people: no text of attackers.
  const isHostile = !process.env.SCREENSHOTS;
  const world = await seed(url, readFileSync(join(folder, "root.key"), "utf8").trim(), isHostile);
  console.log(`seeded in ${((Date.now() - started) / 1000).toFixed(1)} s at ${url}`);
  project.provide("world", world);
  return async () => {
    const ended = new Promise((done) => child.on("exit", done));
    child.kill("SIGTERM");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
}
