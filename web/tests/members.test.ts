import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { Api } from "./setup/api";
import { seriousFindings } from "./setup/axe";
import { openWindow, settled, signIn, type Window } from "./setup/browser";
import { BINARY } from "./setup/server";

/*
 * Two servers on one PostgreSQL: the page of members shows what `/v1/cluster` says, whichever of them is asked.
 */
const isRoot = process.getuid?.() === 0;
const folder = mkdtempSync(join(tmpdir(), "bursar-members-"));
const store = `host=${folder} port=54001 user=postgres dbname=postgres`;
const children: ChildProcess[] = [];
let leader = "";
let standby = "";
let root = "";
let window: Window;

/** A program of PostgreSQL, which refuses to run as root. */
function postgres(program: string, args: string[]): [string, string[]] {
  const versions = existsSync("/usr/lib/postgresql") ? readdirSync("/usr/lib/postgresql").sort() : [];
  const newest = versions.at(-1);
  if (!newest) throw new Error("install the Debian package `postgresql` (version 15 or newer)");
  const path = join("/usr/lib/postgresql", newest, "bin", program);
  return isRoot ? ["setpriv", ["--reuid=postgres", "--regid=postgres", "--clear-groups", "--", path, ...args]] : [path, args];
}

/** Starts a program and waits for a line. */
function started(program: string, args: string[], line: RegExp, env = {}): Promise<string> {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
  children.push(child);
  return new Promise((done, fail) => {
    let text = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (chunk: Buffer) => {
        text += chunk.toString();
        const found = line.exec(text);
        if (found) done(found[1] ?? "");
      });
    }
    child.on("exit", (code) => fail(new Error(`${program} ended with ${code}: ${text.slice(-2000)}`)));
  });
}

function member(name: string, line: RegExp) {
  const args = ["serve", "--listen", "127.0.0.1:0", "--store", store, "--unsafe-single-postgres", "--root-key-file", join(folder, "keys", "root.key"), "--member", name, "--region", "eu"];
  return started(BINARY, args, line, { BURSAR_WEB_DIST: resolve("dist") });
}

async function ended(child: ChildProcess) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const end = new Promise((done) => child.on("exit", done));
  child.kill("SIGTERM");
  await end;
}

beforeAll(async () => {
  chmodSync(folder, 0o777);
  mkdirSync(join(folder, "keys"));
  const data = join(folder, "data");
  execFileSync(...postgres("initdb", ["-D", data, "--username=postgres", "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8"]), { stdio: "ignore" });
  await started(...postgres("postgres", ["-D", data, "-k", folder, "-p", "54001", "-h", ""]), /ready to accept connections/);
  leader = await member("one", /listening on (http:\S+)/);
  standby = await member("two", /standby on (http:[^\s,]+), leader/);
  root = readFileSync(join(folder, "keys", "root.key"), "utf8").trim();
  window = await openWindow();
});
afterAll(async () => {
  await window?.close();
  for (const child of children.reverse()) await ended(child);
  rmSync(folder, { recursive: true, force: true });
});

it("the page of members shows every server of a store and what it owns, whichever answers", async () => {
  const { page } = window;
  for (const url of [leader, standby]) {
    const said = await new Api(url, root).get("/v1/cluster");
    await page.context().clearCookies();
    await signIn(page, url, root, "/members");
    await settled(page);
    const members = page.getByRole("table", { name: "Members" });
    for (const { id, url: address, build } of said.members) {
      const row = members.getByRole("row").filter({ hasText: address });
      const text = await row.innerText();
      for (const expected of [id, build, "active"]) expect(text).toContain(expected);
      expect(text).toContain(id === "one" ? "cell-eu, directory, ledger-0" : "nothing, stands by");
    }
    const machines = page.getByRole("table", { name: "Machines" });
    for (const { id, owner, epoch } of said.machines) {
      const text = await machines.getByRole("row").filter({ hasText: id }).innerText();
      for (const expected of [owner, String(epoch)]) expect(text).toContain(expected);
    }
    const stats = page.getByLabel("Cluster", { exact: true });
    expect(await stats.innerText()).toMatch(/Active members\s*2\s*of 2/i);
    expect(await page.getByText("This server runs alone").count()).toBe(0);
    expect(await seriousFindings(page)).toEqual([]);
  }
  expect(window.errors).toEqual([]);
});

it("a member that is drained shows so, and the other owns every machine", async () => {
  const { page } = window;
  const api = new Api(standby, root);
  await api.post("/v1/cluster/members/one/drain", {});
  await expect.poll(async () => (await api.get("/v1/cluster")).machines.map(({ owner }: { owner: string }) => owner), { timeout: 60_000 }).toEqual(["two", "two", "two"]);
  // Sessions are in the memory of the server that owned the machines.
  await page.context().clearCookies();
  await signIn(page, standby, root, "/members");
  const one = page.getByRole("table", { name: "Members" }).getByRole("row").filter({ hasText: leader });
  await one.getByText("draining").waitFor();
  await one.getByText("nothing, stands by").waitFor();
  await page.getByRole("table", { name: "Machines" }).getByRole("row").filter({ hasText: "ledger-0" }).getByText("two").waitFor();
});
