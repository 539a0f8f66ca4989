import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { Api } from "./setup/api";
import { openWindow, settled, signIn, type Window } from "./setup/browser";

const world = inject("world");
let window: Window;
beforeAll(async () => { window = await openWindow(); });
afterAll(() => window.close());

describe("sign-in with a key", () => {
  it("refuses a wrong key and says which request it was", async () => {
    const { page } = window;
    await page.goto(world.url);
    await page.getByLabel("API key").fill("bursar_wrong");
    await page.getByRole("button", { name: "Sign in with key" }).click();
    const alert = page.getByRole("alert");
    await alert.waitFor();
    expect(await alert.textContent()).toMatch(/req_/);
    window.errors.length = 0;
  });

  it("gives a session that scripts cannot read, and keeps no key", async () => {
    const { page, context } = window;
    const key = world.keys["acme-viewer"] as string;
    await signIn(page, world.url, key);
    await settled(page);
    const cookies = await context.cookies();
    expect(cookies.length).toBeGreaterThan(0);
    for (const cookie of cookies) expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
    const kept = await page.evaluate(() => JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }, document.documentElement.outerHTML]));
    expect(kept).not.toContain(key);
    await page.reload();
    await settled(page);
    expect(await page.getByRole("button", { name: /^Session/ }).textContent()).toContain("viewer");
  });

  it("returns to the address that was asked for", async () => {
    const { page } = window;
    await page.goto(`${world.url}/credits?account=acme:nlp`);
    await settled(page);
    expect(await page.locator("h1").textContent()).toBe("Credits");
  });

  it("ends at once when the session is deleted or its key revoked", async () => {
    const { page, context } = window;
    await page.goto(world.url);
    await page.getByRole("button", { name: /^Session/ }).click();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("API key").waitFor();
    expect(await context.cookies()).toEqual([]);
    const api = new Api(world.url, world.root);
    const made = await api.post("/v1/keys", { role: "viewer", scope: "acme", name: "short-lived" });
    await signIn(page, world.url, made.key);
    await api.ok("DELETE", `/v1/keys/${made.id}`);
    await page.getByLabel("API key").waitFor();
  });

  it("changes nothing without the token of the session", async () => {
    const { page } = window;
    await signIn(page, world.url, world.keys["acme-admin"] as string);
    const status = await page.evaluate(async () => {
      const body = JSON.stringify({ limit: "1", period: "day", mode: "hard" });
      return (await fetch("/v1/accounts/acme/budgets/forged", { method: "PUT", body, headers: { "Content-Type": "application/json" } })).status;
    });
    expect(status).toBe(403);
  });
});
