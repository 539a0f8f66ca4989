import type { ChildProcess } from "node:child_process";
import { afterAll, beforeAll, expect, it } from "vitest";
import { openWindow, settled, signIn, type Window } from "./setup/browser";
import { startDemo } from "./setup/demo";

let demo: { process: ChildProcess; url: string; key: string };
let window: Window;

beforeAll(async () => {
  demo = await startDemo();
  window = await openWindow();
});
afterAll(async () => {
  await window?.close();
  const ended = new Promise((done) => demo?.process.on("exit", done) ?? done(undefined));
  demo?.process.kill("SIGTERM");
  await ended;
});

it("the dashboard of a demo shows a newcomer work, money and nodes", async () => {
  const { page } = window;
  await signIn(page, demo.url, demo.key);
  await settled(page);
  await page.getByText("GPUs allocated").first().waitFor();
  for (const [path, text] of [["/jobs", /job/], ["/credits", /Burn-down by grant/], ["/queue", /Median wait/], ["/cluster", /Nodes and GPUs/], ["/?as=lead", /Who burns/]] as const) {
    await page.goto(demo.url + path);
    await settled(page);
    expect(await page.locator("main").innerText(), path).toMatch(text);
    expect(await page.getByRole("alert").count(), path).toBe(0);
  }
  await page.goto(`${demo.url}/jobs?state=running`);
  await page.getByRole("table", { name: "Jobs" }).locator("tbody tr").first().waitFor();
  expect(window.errors).toEqual([]);
});
