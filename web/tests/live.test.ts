import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { Api } from "./setup/api";
import { openWindow, settled, signIn, type Window } from "./setup/browser";
import { Fleet } from "./setup/fleet";
import { ownServer } from "./setup/server";

const world = inject("world");
const api = new Api(world.url, world.root);
const fleet = new Fleet(api);
let window: Window;

beforeAll(async () => {
  await api.put("/v1/prices/T4", { per_gpu_hour: "36" });
  await fleet.register({ id: "us-live-1", region: "us", rack: "live", type: "T4", gpus: 2, memory: 16 });
  fleet.plan = () => [600_000, 0];
  window = await openWindow();
  await signIn(window.page, world.url, world.keys["acme-submitter"] as string, "/jobs?account=acme:nlp");
  await settled(window.page);
});
afterAll(() => window.close());

it("shows the life of a job as it happens", async () => {
  const { page } = window;
  await page.getByRole("button", { name: "Submit job" }).click();
  const dialog = page.getByRole("dialog", { name: "Submit job" });
  await dialog.getByLabel("Account").fill("acme:nlp:chat");
  await dialog.getByLabel("Name (optional)").fill("live-job");
  await dialog.getByLabel("GPU types").fill("T4");
  await dialog.getByLabel("GPUs", { exact: true }).fill("2");
  await dialog.getByLabel("Time limit").fill("1h");
  await dialog.getByText(/A hold of 72 credits/).waitFor();
  await dialog.getByLabel("GPUs", { exact: true }).fill("1");
  await dialog.getByText(/A hold of 36 credits/).waitFor();
  await dialog.getByRole("button", { name: "Submit job" }).click();
  await dialog.getByText("waits for a placement").waitFor();
  const id = (await dialog.locator("a", { hasText: "job_" }).first().textContent()) as string;
  await dialog.locator("a", { hasText: "job_" }).first().click();
  await page.getByRole("heading", { level: 1, name: "live-job" }).waitFor();
  const state = (name: string) => page.locator("dl.stats .badge", { hasText: name }).waitFor();

  let now = await api.advance(1);
  await fleet.beat(now);
  await fleet.beat(now);
  await state("running");
  now = await api.advance(300);
  await fleet.beat(now);
  await page.locator("dl.stats", { hasText: "3" }).filter({ hasText: "36 per hour" }).waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  now = await api.advance(301);
  await fleet.beat(now);
  await fleet.beat(now);
  await page.getByText(/changes waiting/).waitFor();
  expect(await page.locator("dl.stats .badge").first().textContent()).toContain("running");
  await page.getByRole("button", { name: "Resume" }).click();
  await state("succeeded");
  const job = await api.get(`/v1/jobs/${id}`);
  expect(job.charged).toBe("6");
  const cost = page.locator(".stat", { hasText: "Cost so far" }).locator("dd").first();
  await page.waitForFunction((text) => document.body.innerText.includes(text), "Returned");
  expect(await cost.textContent()).toBe("6");
  expect(window.errors).toEqual([]);
});

it("reads nothing again while it is paused, neither by a timer nor on focus", async () => {
  const other = await openWindow();
  const { page } = other;
  await page.clock.install();
  await signIn(page, world.url, world.keys["acme-viewer"] as string, "/queue?region=eu");
  await settled(page);
  let reads = 0;
  page.on("request", (request) => { if (/\/v1\/regions/.test(request.url())) reads += 1; });
  const age = async () => {
    const [, minutes, seconds] = /updated (?:(\d+)\smin)?\s?(?:(\d+)\ss)? ago/.exec(await page.locator(".live").innerText()) ?? [];
    return 60 * Number(minutes ?? 0) + Number(seconds ?? 0);
  };
  await page.clock.fastForward(31_000);
  await expect.poll(() => reads).toBeGreaterThan(0);
  await settled(page);
  await page.getByRole("button", { name: "Pause" }).click();
  await page.waitForTimeout(500);
  reads = 0;
  await page.clock.fastForward(40_000);
  await page.evaluate(() => { document.dispatchEvent(new Event("visibilitychange")); globalThis.dispatchEvent(new Event("focus")); });
  await expect.poll(age).toBeGreaterThanOrEqual(40);
  await page.waitForTimeout(500);
  expect(reads).toBe(0);
  await page.getByRole("button", { name: "Resume" }).click();
  await expect.poll(() => reads).toBeGreaterThan(0);
  await expect.poll(age).toBeLessThan(20);
  expect(other.errors).toEqual([]);
  await other.close();
});

it("lets an idle session end although the page follows the server", async () => {
  const server = await ownServer("heartbeat_seconds = 3600\nnode_lease_seconds = 864000\n[sessions]\nidle_seconds = 100\n");
  const other = await openWindow();
  const { page } = other;
  await server.api.post("/v1/accounts", { id: "acme", kind: "org" });
  await page.clock.install();
  await signIn(page, server.url, server.api.key, "/accounts");
  await settled(page);
  const background = async (id: string) => {
    const read = page.waitForRequest((request) => request.url().includes("/v1/accounts?"));
    await server.api.post("/v1/accounts", { id: `acme:${id}`, kind: "team" });
    return (await read).headers()["bursar-background"];
  };
  expect(await background("first")).toBeUndefined();
  await page.getByText("acme:first").first().waitFor();
  await page.clock.fastForward(31_000);
  expect(await background("second")).toBe("true");
  await server.api.advance(60);
  expect(await background("third")).toBe("true");
  await server.api.advance(60);
  await page.getByLabel("API key").waitFor();
  await other.close();
  await server.close();
});

it("closes the feed while the page is hidden, and continues where it was", async () => {
  const { page } = window;
  const isFeed = (request: { url: () => string }) => request.url().endsWith("/v1/events");
  const show = (isHidden: boolean) => page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
  }, isHidden);
  await page.goto(`${world.url}/jobs?account=acme:nlp`);
  await page.getByRole("status").filter({ hasText: "Live" }).waitFor();
  const { id } = await api.post("/v1/jobs", { account: "acme:nlp:chat", name: "while-hidden", gpus: { types: ["T4"], count: 2 }, max_runtime_seconds: 60 });
  await page.getByText("while-hidden").first().waitFor();
  const closed = page.waitForEvent("requestfailed", isFeed);
  await show(true);
  await closed;
  await api.post(`/v1/jobs/${id}/cancel`, {});
  const again = page.waitForEvent("request", isFeed);
  await show(false);
  expect((await again).headers()["last-event-id"]).toMatch(/./);
  await page.locator("tr", { hasText: "while-hidden" }).getByText("cancelled").waitFor();
});

it("keeps the last data and says so while the server cannot be reached", async () => {
  const { page } = window;
  const other = await ownServer();
  await other.api.put("/v1/prices/H100", { per_gpu_hour: "2" });
  await signIn(page, other.url, other.api.key, "/prices");
  await settled(page);
  await page.getByRole("status").filter({ hasText: "Live" }).waitFor();
  const ended = new Promise((done) => other.process.on("exit", done));
  other.process.kill("SIGKILL");
  await ended;
  await page.getByRole("status").filter({ hasText: "Offline" }).waitFor();
  expect(await page.getByRole("table", { name: "Prices" }).innerText()).toContain("H100");
  await page.locator("main .stage.stale").waitFor();
  await page.getByText("This is the last that was read").waitFor();
  await other.close();
});
