import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { Api } from "./setup/api";
import { seriousFindings } from "./setup/axe";
import { openWindow, settled, signIn, type Window } from "./setup/browser";
import { addresses } from "./setup/pages";

const world = inject("world");
const api = new Api(world.url, world.root);
let light: Window;
let dark: Window;
let job = "";

beforeAll(async () => {
  job = (await api.get("/v1/jobs?state=running&account=acme&limit=1")).data[0].id;
  [light, dark] = await Promise.all([openWindow(), openWindow({ dark: true })]);
  await Promise.all([light, dark].map((window) => signIn(window.page, world.url, world.root)));
});
afterAll(() => Promise.all([light.close(), dark.close()]));

/** What each page shows of the seeded data. */
const EXPECTED: Record<string, string[]> = {
  "home-researcher": ["Spendable", "Runway", "finetune-chat", "What needs you"],
  "home-lead": ["Who burns", "Credits that expire", "Projected month end"],
  "home-finance": ["9,400", "2026-10", "2026-11", "Opening", "Adds up", "yes"],
  "home-operator": ["GPUs allocated", "eu-h100-1", "Next in the queue", "Largest share error among waiting", "acme:nlp:pretrain"],
  credits: ["nlp-welcome", "Burn-down by grant", "Least average rate", "Greatest average rate", "Granted", "nlp-compensation"],
  spend: ["Spent in 30 d", "acme:nlp", "acme:vision", "Projected month end"],
  budgets: ["week", "blocks first", "acme:nlp:chat"],
  jobs: ["finetune-chat", "acme:vision:seg"],
  job: ["Cost so far", "Hold left", "Life", "hold placed", "price pinned", "charged"],
  queue: ["Median wait", "Largest gang that fits now", "Fair share"],
  share: ["acme:nlp:pretrain", "Entitled"],
  cluster: ["eu-h100-2", "Rack a1", "Fragmentation", "H100", "Use over time", "GPUs allocated"],
  audit: ["Signed up to position", "valid", "submit job"],
  "audit-cell": ["Signed up to position", "valid", "register node", "node eu-h100-1"],
  "audit-directory": ["Signed up to position", "valid", "key created", "Directory: keys and prices"],
  support: ["Timeline of money and placement", "hold placed"],
  accounts: ["Umbra Robotics", "acme:vision"],
  prices: ["H100", "2.5", "urgent"],
  keys: ["billing of acme", "Last used"],
  members: ["Cluster members", "runs alone and owns every machine", "cell-eu", "ledger-0", "serving"],
  settings: ["Times", "First page"],
};

describe("every page", () => {
  it.each(Object.keys(EXPECTED))("%s shows real data, without errors or serious findings", async (name) => {
    const path = addresses(job)[name] as string;
    for (const window of [light, dark]) {
      await window.page.goto(world.url + path);
      await settled(window.page);
      const text = (await window.page.locator("main").innerText()).replaceAll("\u00a0", " ");
      for (const expected of EXPECTED[name] as string[]) expect(text, `${name} shows ${expected}`).toContain(expected);
      expect(text).not.toMatch(/NaN|undefined|\[object/);
      expect(await window.page.locator("nav.side a").evaluateAll((links) => links.filter((link) => link.scrollHeight > link.clientHeight).map((link) => link.textContent)), `${name}: names in the menu fit`).toEqual([]);
      expect(await seriousFindings(window.page), name).toEqual([]);
      expect(window.errors, name).toEqual([]);
    }
    const wide = await light.page.evaluate(() => [document.documentElement.scrollWidth, document.querySelector("main")?.scrollWidth, document.querySelector("main")?.clientWidth]);
    expect(wide[0], `${name} does not scroll sideways`).toBeLessThanOrEqual(1280);
    expect(wide[1]).toBe(wide[2]);
  });

  it.each(["/credits?account=acme:nlp", "/spend?account=acme", "/cluster?region=eu"])("%s has the table twin of its chart", async (path) => {
    await light.page.goto(`${world.url}${path}&view=table`);
    await settled(light.page);
    const twin = light.page.getByRole("table", { name: /as a table/ }).first();
    expect(await twin.locator("tbody tr").count()).toBeGreaterThan(3);
    await light.page.getByRole("button", { name: "Chart" }).first().click();
    await light.page.waitForURL((url) => !url.search.includes("view="));
    await light.page.goBack();
    await twin.waitFor();
  });

  it("says between which days credits end at the average rates of the last week", async () => {
    await light.page.goto(`${world.url}/credits?account=acme:nlp&interval=90`);
    await settled(light.page);
    const text = (await light.page.locator("main").innerText()).replaceAll("\u00a0", " ");
    expect(text).toMatch(/At the average rates of the last day, three days and week: .+ to /);
  });

  it("the cost of a job has a table twin", async () => {
    const cost = light.page.getByRole("table", { name: "Cost, as a table" });
    await light.page.goto(`${world.url}/jobs/${job}?view=table`);
    await settled(light.page);
    await cost.waitFor();
    expect(await cost.locator("tbody tr").count()).toBeGreaterThan(1);
  });

  it("shows a team what limits it and what it spends, also where its scope begins below the org", async () => {
    const team = await openWindow();
    const { page } = team;
    await signIn(page, world.url, world.keys["acme-submitter"] as string, "/budgets");
    await settled(page);
    const above = page.getByRole("table", { name: "Budgets above your scope" });
    await above.waitFor();
    expect(await above.innerText()).toMatch(/acme\s+month/);
    await page.goto(`${world.url}/share?region=eu`);
    await settled(page);
    const spending = page.locator(".stat", { hasText: "Spending" }).locator("dd").first();
    expect(await spending.textContent()).toMatch(/^[1-9]/);
    await page.goto(world.url);
    await settled(page);
    await page.getByText("at the present rate").waitFor();
    await page.goto(`${world.url}/queue?region=eu`);
    await settled(page);
    expect(await page.locator("main").innerText()).not.toMatch(/until in|\b1 (nodes|jobs|GPUs)\b/);
    expect(team.errors).toEqual([]);
    await team.close();
  });

  it("a job's lane has its charges", async () => {
    await light.page.goto(`${world.url}/jobs/${job}`);
    await settled(light.page);
    expect(await light.page.locator('.mark[data-mark="hold_captured"]').count()).toBeGreaterThan(0);
  });

  it.each([
    ["/?as=lead&account=acme:nlp", "Spendable", "/credits", "acme:nlp"],
    ["/?as=researcher&account=acme:nlp:chat", "Burn per hour", "/spend", "acme:nlp:chat"],
    ["/?as=finance&account=umbra", "Expired", "/credits", "umbra"],
    ["/credits?account=umbra", "Spent", "/spend", "umbra"],
  ])("a number of %s (%s) opens the rows of the same account", async (path, label, to, account) => {
    const { page } = light;
    await page.goto(world.url + path);
    await settled(page);
    await page.locator(".stat", { has: page.getByText(label, { exact: true }) }).getByRole("link").first().click();
    await page.waitForURL((url) => url.pathname === to && url.searchParams.get("account") === account);
    await settled(page);
  });

  it("keeps the order of a table in the address", async () => {
    const { page } = light;
    await page.goto(`${world.url}/accounts`);
    await settled(page);
    const header = page.getByRole("columnheader", { name: "Account" });
    await header.getByRole("button").click();
    await page.waitForURL(/sort=accounts\.id/);
    await header.getByRole("button").click();
    await page.waitForURL(/sort=accounts\.-id/);
    await page.reload();
    await settled(page);
    expect(await header.getAttribute("aria-sort")).toBe("descending");
    expect(await page.getByRole("table", { name: "Accounts" }).locator("tbody tr").first().innerText()).toContain("umbra:mapping");
  });

  it("opens a row with Tab and Enter, and without single-key shortcuts", async () => {
    const { page } = light;
    await page.goto(`${world.url}/settings`);
    await page.getByRole("button", { name: "No single-key shortcuts" }).click();
    await page.goto(`${world.url}/accounts`);
    await settled(page);
    await page.keyboard.press("?");
    await page.keyboard.press("g");
    await page.keyboard.press("h");
    expect(await page.getByRole("dialog").count()).toBe(0);
    expect(new URL(page.url()).pathname).toBe("/accounts");
    await page.getByRole("button", { name: "Details of acme:nlp", exact: true }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("complementary", { name: "Details" }).waitFor();
    expect(page.url()).toContain("open=acme:nlp");
    await page.goto(`${world.url}/settings`);
    await page.getByRole("button", { name: "Single-key shortcuts", exact: true }).click();
  });

  it("is readable on a phone", async () => {
    await light.page.setViewportSize({ width: 390, height: 800 });
    for (const path of ["/?as=researcher&account=acme:nlp", "/credits?account=acme:nlp", `/jobs/${job}`]) {
      await light.page.goto(world.url + path);
      await settled(light.page);
      expect(await light.page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
    }
    await light.page.setViewportSize({ width: 1280, height: 800 });
  });

  it("verifies records in the browser and downloads a proof", async () => {
    const { page } = light;
    await page.goto(`${world.url}/audit?q=issue_grant`);
    await settled(page);
    await page.getByRole("button", { name: /^Verify \d+ record/ }).click();
    await page.getByRole("status").filter({ hasText: "✓" }).waitFor({ timeout: 60_000 });
    await page.getByRole("table", { name: "Audit records" }).locator("tbody tr").first().click();
    await page.getByText("in the signed journal").waitFor();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download proof" }).click()]);
    expect(download.suggestedFilename()).toMatch(/^proof-\d+\.json$/);
  });

  it("proves records of cells and of the directory", async () => {
    const { page } = light;
    await page.goto(`${world.url}/audit`);
    await settled(page);
    await page.getByLabel("Machine").selectOption("cell-eu");
    await page.waitForURL(/machine=cell-eu/);
    await settled(page);
    const rows = page.getByRole("table", { name: "Audit records" }).locator("tbody tr");
    await page.getByLabel("Which records").selectOption("all");
    await expect.poll(() => rows.count(), { timeout: 15_000 }).toBeGreaterThan(10);
    await rows.first().click();
    await page.getByText("in the signed journal").waitFor();
    await page.getByLabel("Machine").selectOption("directory");
    await page.getByRole("table", { name: "Audit records" }).getByText("key created").first().click();
    await page.getByRole("complementary").getByText("in the signed journal").waitFor();
    await page.getByRole("heading", { level: 2, name: /^Record \d+ of directory$/ }).waitFor();
    expect(light.errors).toEqual([]);
  });

  it("is reached and used by keyboard", async () => {
    const { page } = light;
    await page.goto(world.url);
    await settled(page);
    for (const [keys, title] of [["gc", "Credits"], ["gq", "Queue"], ["gn", "Cluster"], ["gj", "Jobs"], ["gh", "Home"]] as const) {
      await page.keyboard.press(keys[0] as string);
      await page.keyboard.press(keys[1] as string);
      await page.getByRole("heading", { level: 1, name: title }).waitFor();
    }
    await page.keyboard.press("g");
    await page.keyboard.press("j");
    await page.getByRole("heading", { level: 1, name: "Jobs" }).waitFor();
    await page.getByRole("table", { name: "Jobs" }).locator("tbody tr.openable").nth(2).waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await page.keyboard.press("o");
    await page.getByRole("complementary", { name: "Details" }).waitFor();
    expect(page.url()).toContain("open=");
    await page.keyboard.press("Escape");
    await page.waitForURL((url) => !url.search.includes("open="));
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    await page.keyboard.type("acme-2026-q4\n");
    await page.getByRole("heading", { level: 1, name: "Support" }).waitFor();
    expect(light.errors).toEqual([]);
  });
});
