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

  const device = async (client?: string) => {
    const anyone = new Api(world.url, "none");
    const begun = await anyone.post("/auth/device/code", client ? { client } : undefined);
    return { begun, redeem: () => anyone.call("POST", "/auth/device/token", { device_code: begun.device_code }) };
  };

  it("signs in first and returns to the code of another machine, which shows where it came from", async () => {
    const { page } = window;
    await page.context().clearCookies();
    const { begun, redeem } = await device("ada@login-1");
    await page.goto(world.url + begun.path);
    await page.getByRole("link", { name: "Sign in" }).click();
    await page.getByLabel("API key").fill(world.keys["acme-viewer"] as string);
    window.errors.length = 0;
    await page.getByRole("button", { name: "Sign in with key" }).click();
    await page.getByText(begun.user_code).waitFor();
    const table = await page.locator("table").innerText();
    for (const shown of [/Requested from\s+127\.0\.0\.1/, /ada@login-1 \(not verified\)/, /Requested at\s+20\d\d-/, /viewer of acme/]) expect(table).toMatch(shown);
    await page.getByRole("button", { name: "Approve" }).click();
    await page.getByText("The command line at 127.0.0.1 is signed in").waitFor();
    const { signed_in: made } = (await redeem()).body;
    expect(made.session).toMatchObject({ role: "viewer", scope: "acme" });
    expect((await new Api(world.url, made.token).call("GET", "/v1/accounts/acme")).status).toBe(200);
    expect(window.errors).toEqual([]);
  });

  it("refuses a code, and says when no command line waits with a code", async () => {
    const { page } = window;
    const { begun, redeem } = await device();
    await page.goto(`${world.url}/auth/device`);
    await page.getByLabel("Code").fill("bbbb bbbb");
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText("No command line waits with this code").waitFor();
    await page.getByLabel("Code").fill(begun.user_code.toLowerCase().replace("-", ""));
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByRole("button", { name: "Refuse" }).click();
    await page.getByText("is not signed in").waitFor();
    expect((await redeem()).status).toBe(403);
    window.errors.length = 0;
  });

  it("signs out everywhere", async () => {
    const { page } = window;
    const other = await openWindow();
    const key = world.keys["acme-viewer"] as string;
    await signIn(other.page, world.url, key);
    await page.goto(`${world.url}/settings`);
    await settled(page);
    await page.getByRole("button", { name: "Sign out everywhere" }).click();
    await page.getByLabel("API key").waitFor();
    await other.page.getByLabel("API key").waitFor();
    expect(await page.context().cookies()).toEqual([]);
    await other.close();
  });

  it("does not look signed out while the session may be open", async () => {
    const { page } = window;
    await signIn(page, world.url, world.keys["acme-viewer"] as string);
    await settled(page);
    await page.route("**/v1/session", (route) => (route.request().method() === "DELETE" ? route.abort() : route.continue()));
    await page.getByRole("button", { name: /^Session/ }).click();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByText("You are still signed in.").waitFor();
    await page.unroute("**/v1/session");
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("API key").waitFor();
    window.errors.length = 0;
  });
});
