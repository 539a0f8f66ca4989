import { afterAll, beforeAll, expect, it } from "vitest";
import { openWindow, settled, signIn, type Window } from "./setup/browser";
import { ownServer, type OwnServer } from "./setup/server";

const JOBS = 10_000;
const BATCH = 1_000;
const MAX_ROWS = 200;

let server: OwnServer;
let window: Window;

beforeAll(async () => {
  // A server of its own: so many jobs would change what every other test sees.
  server = await ownServer();
  const { api } = server;
  for (const [type, price] of [["H100", "2.5"], ["L40S", "0.85"]]) await api.put(`/v1/prices/${type}`, { per_gpu_hour: price });
  await api.post("/v1/accounts", { id: "bulk", kind: "org" });
  await api.post("/v1/grants", { account: "bulk", amount: "1000000", kind: "purchase" });
  const spec = { account: "bulk", gpus: { types: ["L40S"], count: 1 }, max_runtime_seconds: 60 };
  // The others wait for this one, which is too large to start soon, so no region has to consider them.
  const first = await api.post("/v1/jobs", { ...spec, id: "bulk-first", gpus: { types: ["H100"], count: 8 } });
  for (let at = 1; at < JOBS; at += BATCH) {
    const operations = Array.from({ length: Math.min(BATCH, JOBS - at) }, (_, i) => ({ method: "POST", path: "/v1/jobs", body: { ...spec, id: `bulk-${at + i}`, name: `bulk job ${at + i}`, after: [first.id] } }));
    const { results } = await api.post("/v1/batch", { operations });
    expect(results.filter(({ status }: { status: number }) => status !== 201)).toEqual([]);
  }
  window = await openWindow();
  await signIn(window.page, server.url, await api.makeKey("viewer", "bulk"), "/jobs");
}, 180_000);
afterAll(async () => {
  await window?.close();
  await server?.close();
});

it("a list of 10 000 jobs keeps at most 200 rows in the document", async () => {
  const { page } = window;
  await settled(page);
  const frame = page.getByRole("region", { name: "Jobs" });
  const rows = () => page.locator("main tbody tr").count();
  let most = await rows();
  for (;;) {
    const loaded = Number(await frame.getAttribute("data-rows"));
    if (loaded >= JOBS) break;
    await frame.evaluate((element) => element.scrollTo(0, element.scrollHeight));
    await page.waitForFunction((before) => Number(document.querySelector("main .table-wrap")?.getAttribute("data-rows")) > before, loaded);
    most = Math.max(most, await rows());
  }
  await frame.evaluate((element) => element.scrollTo(0, element.scrollHeight / 2));
  most = Math.max(most, await rows());
  console.log(`${JOBS} jobs, at most ${most} rows in the document`);
  expect(most).toBeLessThanOrEqual(MAX_ROWS);
  expect(await page.locator("main").innerText()).toContain("10,000 jobs");
  expect(window.errors).toEqual([]);
}, 120_000);
