import { spawn, type ChildProcess } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { Api } from "./setup/api";
import { openWindow, settled, type Window } from "./setup/browser";
import { startServer } from "./setup/server";

const folder = mkdtempSync(join(tmpdir(), "bursar-web-"));
let provider: ChildProcess;
let server: ChildProcess;
let idp = "";
let url = "";
let window: Window;

/** The provider of the server's own tests, beside the packages of this folder. */
async function startProvider(): Promise<string> {
  mkdirSync("node_modules/.cache", { recursive: true });
  const script = resolve("node_modules/.cache/provider.mjs");
  copyFileSync(resolve("../crates/cli/tests/people/provider/real.mjs"), script);
  provider = spawn("node", [script], { stdio: ["ignore", "pipe", "ignore"] });
  return new Promise((done, fail) => {
    provider.stdout?.once("data", (chunk: Buffer) => done(chunk.toString().trim()));
    provider.once("exit", () => fail(new Error("the identity provider ended")));
  });
}

const freePort = () => new Promise<number>((done) => {
  const socket = createServer().listen(0, "127.0.0.1", () => {
    const { port } = socket.address() as { port: number };
    socket.close(() => done(port));
  });
});

beforeAll(async () => {
  idp = await startProvider();
  const port = await freePort();
  url = `http://127.0.0.1:${port}`;
  writeFileSync(join(folder, "secret"), "a secret: +/%\n");
  writeFileSync(join(folder, "bursar.toml"), `
[oidc]
issuer = "${idp}"
client_id = "bursar"
client_secret_file = "${join(folder, "secret")}"
name = "Example ID"
scopes = ["openid", "profile", "groups"]
[[oidc.groups]]
group = "gpu-admins"
role = "admin"
scope = "*"
[[oidc.groups]]
group = "nlp"
role = "submitter"
scope = "acme:nlp"
`);
  server = (await startServer(folder, ["--listen", `127.0.0.1:${port}`])).process;
  const api = new Api(url, readFileSync(join(folder, "root.key"), "utf8").trim());
  for (const [id, kind] of [["acme", "org"], ["acme:nlp", "team"]]) await api.post("/v1/accounts", { id, kind });
  await fetch(`${idp}/setup?redirect=${encodeURIComponent(`${url}/auth/callback`)}`, { method: "POST" });
  window = await openWindow();
});

afterAll(async () => {
  await window?.close();
  const ended = new Promise((done) => server?.on("exit", done) ?? done(undefined));
  server?.kill("SIGTERM");
  await ended;
  provider?.kill();
  rmSync(folder, { recursive: true, force: true });
});

it("people sign in at their provider, with the role of their groups, and return to the page", async () => {
  const { page } = window;
  await fetch(`${idp}/as?person=bob`);
  await page.goto(`${url}/budgets`);
  await page.getByRole("link", { name: "Sign in with Example ID" }).click();
  await page.getByRole("heading", { level: 1, name: "Budgets" }).waitFor();
  await settled(page);
  const session = page.getByRole("button", { name: /^Session/ });
  expect(await session.textContent()).toMatch(/submitter.*acme:nlp/);
  await page.getByText("has a budget").waitFor();
  expect(await page.getByRole("link", { name: "Keys" }).count()).toBe(0);
  for (const cookie of await window.context.cookies(url)) expect(cookie.httpOnly).toBe(true);
  await session.click();
  await page.getByRole("button", { name: "Sign out" }).click();
  // The page of the provider that signs out there as well.
  await page.waitForURL((to) => to.origin === idp);
  await page.getByText(/sign-out from/i).waitFor();
  await page.goto(url);
  await page.getByLabel("API key").waitFor();
  // The provider's own pages are not ours.
  expect(window.errors.filter((line) => line.includes(url))).toEqual([]);
});

it("the name of a person stays text", async () => {
  const { page } = window;
  // Another person at another browser.
  await window.context.clearCookies();
  await fetch(`${idp}/as?person=alice`);
  await page.goto(`${url}/settings`);
  await page.getByRole("link", { name: "Sign in with Example ID" }).click();
  await page.getByRole("heading", { level: 1, name: "Settings" }).waitFor();
  await page.getByText("Alice <Admin>").waitFor();
  const { path } = await new Api(url, "none").post("/auth/device/code", { client: "ada@login-1" });
  await page.goto(url + path);
  await page.getByText("Alice <Admin>").first().waitFor();
  expect(await page.locator("admin").count()).toBe(0);
});
