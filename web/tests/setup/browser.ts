import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type BrowserContext, type Page } from "playwright-core";

export const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
];

/** A window of Debian's Chromium with a profile of its own. */
export interface Window {
  context: BrowserContext;
  page: Page;
  /** Errors of the console, of scripts and of requests that a page must not cause. */
  errors: string[];
  close: () => Promise<void>;
}

export async function openWindow(options: { dark?: boolean; width?: number; height?: number } = {}): Promise<Window> {
  const profile = mkdtempSync(join(tmpdir(), "bursar-chromium-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: CHROMIUM, headless: true, args: FLAGS,
    viewport: { width: options.width ?? 1280, height: options.height ?? 800 }, colorScheme: options.dark ? "dark" : "light",
    locale: "en-GB", timezoneId: "UTC", reducedMotion: "reduce",
  });
  context.setDefaultTimeout(15_000);
  const page = context.pages()[0] ?? (await context.newPage());
  const errors: string[] = [];
  watch(page, errors);
  return { context, page, errors, close: async () => { await context.close(); rmSync(profile, { recursive: true, force: true }); } };
}

export function watch(page: Page, errors: string[]) {
  page.on("console", (message) => {
    // Without a cookie the first request of a page is answered 401, and the browser notes it.
    const isSignedOut = message.text().includes("401") && message.location().url.endsWith("/v1/session");
    if (!isSignedOut && ["error", "warning"].includes(message.type())) errors.push(`${message.text()} at ${message.location().url}`);
  });
  page.on("pageerror", (error) => errors.push(String(error)));
}

/** Signs in with a key, as a person does. */
export async function signIn(page: Page, url: string, key: string, path = "/") {
  await page.goto(url + path);
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Sign in with key" }).click();
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
}

/** Waits until nothing on the page is loading. */
export async function settled(page: Page) {
  await page.locator("h1").first().waitFor();
  await page.waitForFunction(() => document.querySelectorAll("main [aria-busy], main .skeleton").length === 0);
}

/** Opens another page of the dashboard without loading it again. */
export async function visit(page: Page, path: string) {
  await page.evaluate((to) => { history.pushState({}, "", to); dispatchEvent(new PopStateEvent("popstate")); }, path);
  await settled(page);
}
