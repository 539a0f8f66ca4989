import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { Api } from "./setup/api";
import { openWindow, settled, signIn, type Window } from "./setup/browser";

const world = inject("world");
const api = new Api(world.url, world.root);
let window: Window;

beforeAll(async () => {
  window = await openWindow();
  await signIn(window.page, world.url, world.root, "/support");
});
afterAll(() => window.close());

const find = async (text: string) => {
  await window.page.goto(`${world.url}/support?q=${encodeURIComponent(text)}`);
  await settled(window.page);
  return window.page;
};

it("the hold of a job leads to the job's timeline", async () => {
  const job = (await api.get("/v1/jobs?state=running&account=acme&limit=1")).data[0];
  const page = await find(job.hold.id);
  await page.getByText("Timeline of money and placement").waitFor();
  await page.locator(".timeline").getByText("hold placed").first().waitFor();
  await page.getByRole("link", { name: job.id }).first().waitFor();
});

it("a hold without a job has a timeline of money", async () => {
  const hold = await api.post("/v1/holds", { account: "umbra", amount: "3", reference: "a purchase" });
  await api.post(`/v1/holds/${hold.id}/capture`, { total: "1" });
  const page = await find(hold.id);
  const rows = page.getByRole("table", { name: "Movements" });
  for (const type of ["held", "captured"]) await rows.getByText(type, { exact: true }).first().waitFor();
  await page.getByText("a purchase").first().waitFor();
});

it("a grant has the movements of its credits", async () => {
  const page = await find("nlp-welcome");
  const rows = page.getByRole("table", { name: "Movements" });
  await rows.getByText("held", { exact: true }).first().waitFor();
  await page.getByRole("button", { name: "Show earlier ones" }).click();
  await settled(page);
  await page.getByRole("link", { name: /Open it among the credits/ }).waitFor();
});

it("a charge has its facts and movements", async () => {
  const charge = await api.post("/v1/charges", { id: "charge-to-find", account: "umbra", amount: "0.5" });
  const page = await find(charge.id);
  await page.getByRole("table", { name: "Movements" }).getByText("charged", { exact: true }).first().waitFor();
});

it("a request leads to its record, and the record opens in the audit trail", async () => {
  const answer = await fetch(`${world.url}/v1/accounts/umbra/budgets/asked`, {
    method: "PUT", headers: { Authorization: `Bearer ${world.root}`, "Content-Type": "application/json" }, body: JSON.stringify({ limit: "7", period: "day", mode: "soft" }),
  });
  const [request, position] = [answer.headers.get("bursar-request-id") as string, answer.headers.get("bursar-position") as string];
  const page = await find(request);
  const records = page.getByRole("table", { name: "Records" });
  await records.getByText("set budget", { exact: true }).waitFor();
  await records.getByText(position, { exact: true }).waitFor();
  await page.getByRole("link", { name: "Open in the audit trail" }).click();
  await page.getByRole("heading", { level: 2, name: `Record ${position}` }).waitFor();
  expect(await page.getByRole("table", { name: "Audit records" }).locator("tbody tr").count()).toBe(1);
});

it("a request that made a key leads to the record of the directory", async () => {
  const answer = await fetch(`${world.url}/v1/keys`, {
    method: "POST", headers: { Authorization: `Bearer ${world.root}`, "Content-Type": "application/json" }, body: JSON.stringify({ id: "key-of-request", role: "viewer", scope: "umbra", name: "n" }),
  });
  const page = await find(answer.headers.get("bursar-request-id") as string);
  await page.getByRole("table", { name: "Records" }).getByText("key created", { exact: true }).first().waitFor();
  await page.getByRole("link", { name: "Open in the audit trail" }).click();
  await page.getByRole("heading", { level: 2, name: /^Record \d+ of directory$/ }).waitFor();
  await page.getByRole("complementary").getByText("key key-of-request").waitFor();
});

it("a key has what it did", async () => {
  const made = await api.post("/v1/keys", { id: "key-to-find", role: "billing", scope: "umbra", name: "to find" });
  await new Api(world.url, made.key).put("/v1/accounts/umbra/budgets/by-key", { limit: "9", period: "day", mode: "soft" });
  const page = await find("key-to-find");
  const records = page.getByRole("table", { name: "Records" });
  await records.getByText("set budget", { exact: true }).first().waitFor();
  expect(await records.locator("tbody tr").count()).toBe(1);
  expect(window.errors).toEqual([]);
});
