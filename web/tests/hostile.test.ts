import type { Locator } from "playwright-core";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { Api } from "./setup/api";
import { openWindow, settled, signIn, type Window } from "./setup/browser";
import { addresses } from "./setup/pages";
import { HOSTILE } from "./setup/world";

const world = inject("world");
let window: Window;
let job = "";

beforeAll(async () => {
  job = (await new Api(world.url, world.root).get("/v1/jobs/mallory-job")).id;
  window = await openWindow();
  await signIn(window.page, world.url, world.keys["mallory-admin"] as string);
});
afterAll(() => window.close());

const isSafe = async (where: string, page = window.page) => {
  expect(await page.evaluate(() => (globalThis as any).__pwned), where).toBeUndefined();
  expect(await page.locator("main img, main script, main iframe, main object, dialog img, dialog script").count(), where).toBe(0);
  expect(await page.locator("body").innerText(), where).not.toContain("\u202e");
};

it("text of others stays text on every page", async () => {
  const own = Object.entries(addresses(job)).map(([name, path]) => [name, path.replaceAll("acme:nlp", "mallory").replaceAll("acme", "mallory")] as const);
  const more = ["why", "timeline", "logs", "ledger", "spec", "cli"].map((tab) => [`job ${tab}`, `/jobs/${job}?tab=${tab}`] as const);
  const panels = [["grant", "/credits?account=mallory&open=mallory-1"], ["account", "/accounts?open=mallory"], ["panel", `/jobs?open=${job}`], ["node", "/cluster?region=us&open=us-mallory-1"], ["hold", "/support?q=mallory-hold"]] as const;
  let seen = 0;
  for (const [name, path] of [...own, ...more, ...panels]) {
    await window.page.goto(world.url + path);
    await settled(window.page);
    await isSafe(name);
    const isSeen = (await window.page.locator("main").innerText()).includes("<img src=x onerror=");
    if (isSeen) seen += 1;
    // These show it for certain: output, labels of nodes, the reference of a hold, the spec.
    if (["job logs", "node", "hold", "job spec"].includes(name)) expect(isSeen, name).toBe(true);
  }
  expect(seen).toBeGreaterThan(6);
  expect(window.errors).toEqual([]);
});

it("text in addresses and fields stays text", async () => {
  const { page } = window;
  const text = encodeURIComponent(HOSTILE);
  for (const path of [`/jobs?q=${text}`, `/jobs?label=${text}`, `/support?q=${text}`, `/audit?q=${text}`, `/?account=${text}`, `/credits?account=${text}`, `/jobs/${text}`, `/cluster?region=${text}`, `/${text}`, `/jobs?account=javascript:alert(1)`]) {
    await page.goto(world.url + path);
    await page.locator("h1").first().waitFor();
    await isSafe(path);
  }
  await page.goto(`${world.url}/jobs`);
  await settled(page);
  await page.getByRole("button", { name: "Submit job" }).click();
  const dialog = page.getByRole("dialog");
  for (const field of await dialog.getByRole("textbox").all()) await field.fill(HOSTILE);
  await isSafe("submit dialog");
  await dialog.getByRole("button", { name: "Close", exact: true }).click();
  await page.getByRole("searchbox", { name: "Search by id or name" }).fill(HOSTILE);
  await page.keyboard.press("Enter");
  await settled(page);
  await isSafe("search");
  // Refused requests are logged by the browser itself.
  expect(window.errors.filter((line) => !line.startsWith("Failed to load resource"))).toEqual([]);
});

it("text that is submitted stays text where it is shown", async () => {
  const { page } = window;
  await page.goto(`${world.url}/keys`);
  await settled(page);
  await page.getByRole("button", { name: "Make key" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill(`${HOSTILE} key`);
  await dialog.getByRole("button", { name: "Make key" }).click();
  await dialog.getByText("The key, shown this once").waitFor();
  await isSafe("made key");
  await dialog.getByRole("button", { name: "Close" }).last().click();
  await page.getByRole("table", { name: "Keys" }).getByText("key", { exact: false }).first().waitFor();
  await isSafe("keys");
  await page.goto(`${world.url}/jobs`);
  await settled(page);
  await page.getByRole("button", { name: "Submit job" }).click();
  await dialog.getByLabel("Name (optional)").fill(HOSTILE);
  await dialog.getByLabel("GPU types").fill("T1000");
  await dialog.getByLabel("Command").fill(`echo ${HOSTILE.replaceAll("'", "")}`);
  await dialog.getByText(/A hold of 1 credits/).waitFor();
  await dialog.getByRole("button", { name: "Submit job" }).click();
  await dialog.getByText("waits for a placement").waitFor();
  await isSafe("submitted");
  await dialog.locator("a", { hasText: "job_" }).first().click();
  await page.getByRole("heading", { level: 1 }).filter({ hasText: "<img" }).waitFor();
  await isSafe("the job's page");
  window.errors.length = 0;
});

it("text in every field of every page and dialog stays text", async () => {
  const root = await openWindow();
  const { page } = root;
  await signIn(page, world.url, world.root);
  const dialogs = /^(Grant credits|Set budget|Submit job|Cancel jobs by filter|Make key|End sessions|Set price|Change limit|Refund|Cancel job)$/;
  let fields = 0;
  const fill = async (scope: Locator) => {
    for (const field of await scope.locator("input:not([type=checkbox]):not([type=date]):not([type=number]), textarea").all()) {
      if (!(await field.isVisible()) || !(await field.isEditable())) continue;
      await field.fill(HOSTILE);
      fields += 1;
    }
  };
  const paths = [...Object.values(addresses(job)), "/budgets?account=acme:nlp&open=acme:nlp%20week", `/support?q=${job}`];
  for (const path of paths) {
    await page.goto(world.url + path);
    await settled(page);
    const buttons = await page.getByRole("button", { name: dialogs }).all();
    for (const button of buttons) {
      await button.click();
      const dialog = page.getByRole("dialog");
      await fill(dialog);
      await isSafe(path, page);
      await dialog.getByRole("button", { name: "Close", exact: true }).first().click();
    }
    await fill(page.locator("main"));
    await isSafe(path, page);
  }
  expect(fields).toBeGreaterThan(30);
  expect(root.errors.filter((line) => !line.startsWith("Failed to load resource"))).toEqual([]);
  await root.close();
});
