import type { ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { Api } from "./setup/api";
import { CHROMIUM, FLAGS, openWindow, settled, signIn, watch, type Window } from "./setup/browser";
import { startDemo } from "./setup/demo";

/*
 * What the dashboard costs, against `bursar demo` and its load. Figures are printed: they depend on the
 * machine and on what else it does, so nothing here fails because of them.
 */
const PAGES = 20;
const SECONDS = Number(process.env.COST_SECONDS ?? 60);
const PATHS = ["/", "/?as=lead&account=acme", "/?as=operator", "/credits?account=acme", "/spend?account=acme", "/budgets?account=acme", "/jobs", "/queue", "/share", "/cluster"];
/** Ticks a second of /proc/PID/stat. */
const TICKS = 100;

let demo: ChildProcess;
let url = "";
let key = "";
let window: Window;

const pause = (seconds: number) => new Promise((done) => setTimeout(done, seconds * 1000));

/** Processor seconds that the process of the server has used. */
function processorSeconds(): number {
  const fields = readFileSync(`/proc/${demo.pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

/** The part of one core that it uses, over a time. */
async function load(seconds: number): Promise<number> {
  const before = processorSeconds();
  await pause(seconds);
  return ((processorSeconds() - before) / seconds) * 100;
}

beforeAll(async () => {
  ({ process: demo, url, key } = await startDemo());
  window = await openWindow();
  await signIn(window.page, url, key);
  await settled(window.page);
});
afterAll(async () => {
  await window?.close();
  const ended = new Promise((done) => demo.on("exit", done));
  demo.kill("SIGTERM");
  await ended;
});

it("first paint and first content of the first page", async () => {
  const times: [number, number][] = [];
  for (let i = 0; i < 5; i++) {
    await window.page.goto(url);
    await settled(window.page);
    const paint = await window.page.evaluate(() => [performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0, performance.now()] as [number, number]);
    times.push(paint.map(Math.round) as [number, number]);
  }
  console.log(`first paint: ${times.map(([first]) => `${first} ms`).join(", ")}; everything on the page: ${times.map(([, all]) => `${all} ms`).join(", ")}`);
});

it("what twenty open pages cost the server", async () => {
  await window.page.goto("about:blank");
  await pause(20);
  const alone = await load(SECONDS);
  const errors: string[] = [];
  // Twenty people: each has a key, a session and connections of its own.
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
  for (let i = 0; i < PAGES; i++) {
    const page = await (await browser.newContext()).newPage();
    watch(page, errors);
    await signIn(page, url, await new Api(url, key).makeKey("admin", "*", `person ${i}`), PATHS[i % PATHS.length]);
    await settled(page);
  }
  await pause(10);
  const watched = await load(SECONDS);
  await browser.close();
  await pause(5);
  const again = await load(SECONDS);
  console.log(`of one core: ${watched.toFixed(1)} % with ${PAGES} pages, ${alone.toFixed(1)} % before and ${again.toFixed(1)} % after, so ${(watched - (alone + again) / 2).toFixed(1)} % for the pages`);
  expect(errors).toEqual([]);
});
