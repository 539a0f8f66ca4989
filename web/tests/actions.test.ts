import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { Api } from "./setup/api";
import { openWindow, settled, signIn, type Window } from "./setup/browser";
import { submit } from "./setup/world";

const world = inject("world");
const api = new Api(world.url, world.root);
let window: Window;
let page: Page;

beforeAll(async () => {
  window = await openWindow();
  page = window.page;
  await signIn(page, world.url, world.root);
});
afterAll(() => window.close());

const open = async (path: string) => {
  await page.goto(world.url + path);
  await settled(page);
};

/** Opens a dialog, reads its effect, confirms, and reads the audit record. */
async function act(button: string, title: string | RegExp, effect: string | RegExp, verb: string | RegExp, record: RegExp, fill?: (dialog: Locator) => Promise<void>) {
  await page.getByRole("button", { name: button, exact: true }).first().click();
  const dialog = page.getByRole("dialog", { name: title });
  await dialog.waitFor();
  await fill?.(dialog);
  await dialog.locator(".effect").getByText(effect).first().waitFor();
  await dialog.getByRole("button", { name: verb }).click();
  await dialog.getByText("Done", { exact: true }).waitFor();
  await dialog.getByLabel("Audit record").first().getByText(record).first().waitFor();
  const text = await dialog.innerText();
  await dialog.getByRole("button", { name: "Close" }).last().click();
  return text;
}

const waiting = (name: string, account = "acme:vision") => submit(api, { account, name, gpus: { types: ["H100"], count: 8 }, hours: 1 });

describe("actions show their effect first and the audit record afterwards", () => {
  it("grants credits", async () => {
    await open("/credits?account=umbra");
    const before = await api.get("/v1/accounts/umbra/balance");
    await act("Grant credits", "Grant credits", /afterwards/, "Grant credits", /issue grant/, async (dialog) => {
      await dialog.getByLabel("Amount").fill("12.345678");
      await dialog.getByLabel("Your id (optional)").fill("umbra-extra");
    });
    const after = await api.get("/v1/accounts/umbra/balance");
    expect(BigInt(Math.round(Number(after.available) * 1e6)) - BigInt(Math.round(Number(before.available) * 1e6))).toBe(12_345_678n);
    await page.getByRole("table", { name: "Grants" }).getByText("umbra-extra").waitFor();
  });

  it("sets a budget, and warns when more is used than the new limit", async () => {
    await open("/budgets?account=acme:nlp&open=acme:nlp%20week");
    await act("Change limit", /Change budget/, /new holds are refused/, "Set budget", /set budget/, (dialog) => dialog.getByLabel("Limit").fill("1"));
    await act("Change limit", /Change budget/, /remain in this period/, "Set budget", /set budget/, (dialog) => dialog.getByLabel("Limit").fill("5000"));
    expect((await api.get("/v1/accounts/acme:nlp/budgets/week")).limit).toBe("5000");
  });

  it("cancels a job", async () => {
    const id = (await waiting("to-cancel", "umbra:mapping")) as string;
    await open(`/jobs/${id}`);
    await act("Cancel job", /Cancel to-cancel/, /held credits return/, "Cancel job", /cancel/);
    await page.locator("dl.stats .badge", { hasText: "cancelled" }).waitFor();
    expect((await api.get(`/v1/jobs/${id}`)).state).toBe("cancelled");
  });

  it("cancels jobs by filter", async () => {
    for (let i = 0; i < 3; i++) await waiting(`sweep-${i}`, "umbra:mapping");
    const other = (await waiting("keep-me", "umbra:mapping")) as string;
    await open("/jobs?account=umbra&q=sweep-&state=queued");
    await act("Cancel jobs by filter", "Cancel jobs by filter", /3 jobs would be cancelled/, "Cancel 3 jobs", /cancel/);
    expect((await api.get(`/v1/jobs/${other}`)).state).toBe("queued");
  });

  it("preempts a job", async () => {
    const { data } = await api.get("/v1/jobs?state=running&account=acme&limit=1");
    await open(`/jobs/${data[0].id}`);
    await page.getByRole("button", { name: "Preempt job" }).click();
    const dialog = page.getByRole("dialog", { name: /Preempt/ });
    await dialog.locator(".effect").getByText(/returns to the queue/).waitFor();
    await dialog.getByRole("button", { name: "Preempt job" }).click();
    await dialog.getByText("Done", { exact: true }).waitFor();
    expect(await dialog.getByLabel("Audit record").innerText()).toMatch(/record \d+ of cell-(eu|us), by root[\s\S]*req_/);
    expect((await api.get(`/v1/jobs/${data[0].id}`)).state).toBe("stopping");
  });

  it("refunds a job, never more than was charged", async () => {
    const { data } = await api.get("/v1/jobs?state=succeeded&account=acme&limit=1");
    await open(`/jobs/${data[0].id}`);
    await page.getByRole("button", { name: "Refund" }).click();
    const dialog = page.getByRole("dialog", { name: /Refund/ });
    await dialog.getByLabel("Amount").fill("99999");
    await dialog.getByText(/More than the/).waitFor();
    expect(await dialog.getByRole("button", { name: "Refund credits" }).isDisabled()).toBe(true);
    await dialog.getByRole("button", { name: "Close", exact: true }).click();
    await act("Refund", /Refund/, /return to the grants/, "Refund credits", /refund/, (form) => form.getByLabel("Amount").fill("0.25"));
  });

  it("drains a node and resumes it", async () => {
    await open("/cluster?region=us&open=us-l40s-1");
    for (const [verb, effect, state] of [["Drain node", /Nothing new is placed/, /drain/], ["Resume node", /New jobs are placed on it again/, /ready/]] as const) {
      await page.getByRole("button", { name: verb }).click();
      const dialog = page.getByRole("dialog");
      await dialog.locator(".effect").getByText(effect).waitFor();
      await dialog.getByRole("button", { name: verb }).click();
      await dialog.getByText("Done", { exact: true }).waitFor();
      expect(await dialog.getByLabel("Audit record").innerText()).toMatch(/record \d+ of cell-us, by root[\s\S]*req_/);
      await dialog.getByRole("button", { name: "Close" }).last().click();
      expect((await api.get("/v1/nodes/us-l40s-1")).state).toMatch(state);
      await page.getByRole("complementary").getByText(state).first().waitFor();
    }
  });

  it("makes a key, shows its secret once, and revokes it", async () => {
    await open("/keys");
    await page.getByRole("button", { name: "Make key" }).click();
    const dialog = page.getByRole("dialog", { name: "Make key" });
    await dialog.getByLabel("Name").fill("made-here");
    await dialog.getByLabel("Scope").fill("acme:vision");
    await dialog.locator(".effect").getByText(/acme:vision and all below it/).waitFor();
    await dialog.getByRole("button", { name: "Make key" }).click();
    const secret = (await dialog.locator("code").first().textContent()) as string;
    expect(await dialog.getByLabel("Audit record").innerText()).toMatch(/record \d+ of directory, by root/);
    expect((await new Api(world.url, secret).call("GET", "/v1/accounts/acme:vision")).status).toBe(200);
    await dialog.getByRole("button", { name: "Close" }).last().click();
    expect(await page.locator("body").innerText()).not.toContain(secret);
    await page.getByRole("button", { name: "Revoke made-here" }).click();
    const revoke = page.getByRole("dialog", { name: /Revoke key/ });
    await revoke.locator(".effect").getByText(/cannot be undone/).waitFor();
    await revoke.getByRole("button", { name: "Revoke key" }).click();
    await revoke.getByText("Done", { exact: true }).waitFor();
    expect(await revoke.getByLabel("Audit record").innerText()).toMatch(/record \d+ of directory, by root/);
    expect((await new Api(world.url, secret).call("GET", "/v1/accounts/acme:vision")).status).toBe(401);
  });

  it("sends a change whose answer was lost once, however often it is sent", async () => {
    await open("/credits?account=umbra");
    let sent = 0;
    await page.route("**/v1/grants", async (route) => {
      if (route.request().method() !== "POST") return route.continue();
      sent += 1;
      if (sent > 1) return route.continue();
      // The server makes the grant; the page does not learn it.
      await route.fetch();
      return route.abort();
    });
    await page.getByRole("button", { name: "Grant credits", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Amount").fill("3.000001");
    await dialog.getByRole("button", { name: "Grant credits" }).click();
    await dialog.getByText("It is not known whether this was done").waitFor();
    expect(await dialog.getByLabel("Amount").isDisabled()).toBe(true);
    await dialog.getByRole("button", { name: "Grant credits: send again" }).click();
    await dialog.getByText("Done", { exact: true }).waitFor();
    await page.unroute("**/v1/grants");
    await dialog.getByRole("button", { name: "Close" }).last().click();
    const { data } = await api.get("/v1/grants?account=umbra&limit=100");
    expect(data.filter((grant: { amount: string }) => grant.amount === "3.000001")).toHaveLength(1);
    window.errors.length = 0;
  });

  it("says that the secret of a key is lost with its answer", async () => {
    await open("/keys");
    let sent = 0;
    await page.route("**/v1/keys", async (route) => {
      if (route.request().method() !== "POST") return route.continue();
      sent += 1;
      if (sent > 1) return route.continue();
      await route.fetch();
      return route.abort();
    });
    await page.getByRole("button", { name: "Make key" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("lost-answer");
    await dialog.getByLabel("Scope").fill("umbra");
    await dialog.getByRole("button", { name: "Make key" }).click();
    await dialog.getByRole("button", { name: "Make key: send again" }).click();
    await dialog.getByText("Its secret is not shown again").waitFor();
    await page.unroute("**/v1/keys");
    await dialog.getByRole("button", { name: "Close" }).last().click();
    expect((await api.get("/v1/keys?limit=100")).data.filter((key: { name: string }) => key.name === "lost-answer")).toHaveLength(1);
    window.errors.length = 0;
  });

  it("sets a price", async () => {
    await open("/prices");
    await act("Set price", "Set price", /costs 9\.5 credits/, "Set price", /record \d+ of directory, by root/, async (dialog) => {
      await dialog.getByLabel("GPU type").fill("B200");
      await dialog.getByLabel("Credits per GPU hour").fill("9.5");
    });
    await page.getByRole("table", { name: "Prices" }).getByText("B200").waitFor();
  });

  it("revokes a grant", async () => {
    await api.post("/v1/grants", { id: "to-revoke", account: "umbra", amount: "40", kind: "promotion" });
    await open("/credits?account=umbra&open=to-revoke");
    const text = await act("Revoke grant", "Revoke to-revoke", /40 available credits of umbra end now/, "Revoke grant", /revoke grant/);
    expect(text).toContain("40 credits revoked");
    expect((await api.get("/v1/grants/to-revoke")).available).toBe("0");
  });

  it("sets a new budget", async () => {
    await open("/budgets?account=umbra:control");
    await act("Set budget", "Set budget", /A new limit of 77 applies to umbra:control/, "Set budget", /set budget/, async (dialog) => {
      await dialog.getByLabel("Name").fill("quarter");
      await dialog.getByLabel("Limit").fill("77");
    });
    await page.getByRole("table", { name: "Budgets" }).getByText("quarter").waitFor();
  });

  it("submits a job", async () => {
    await open("/jobs?account=umbra:mapping");
    await act("Submit job", "Submit job", /A hold of/, "Submit job", /submit job/, async (dialog) => {
      await dialog.getByLabel("Account").fill("umbra:mapping");
      await dialog.getByLabel("Name (optional)").fill("from-the-page");
      await dialog.getByLabel("GPU types").fill("H100");
      await dialog.getByText(/A hold of 2\.5 credits/).waitFor();
    });
    await page.getByRole("table", { name: "Jobs" }).getByText("from-the-page").first().waitFor();
  });

  it("drains a node with what runs on it", async () => {
    await open("/cluster?region=eu&open=eu-a100-1");
    await act("Drain node", "Drain eu-a100-1", /stopped now and (its|their) jobs? waits? again|No job runs on it/, "Drain node", /record \d+ of cell-eu/, (dialog) => dialog.getByLabel("Stop what runs on it").check());
    await act("Resume node", "Resume eu-a100-1", /New jobs are placed/, "Resume node", /record \d+ of cell-eu/);
  });

  it("opens the record of a drained node in the trail of its cell", async () => {
    await open("/cluster?region=eu&open=eu-a100-1");
    await page.getByRole("button", { name: "Drain node", exact: true }).first().click();
    const dialog = page.getByRole("dialog", { name: "Drain eu-a100-1" });
    await dialog.getByRole("button", { name: "Drain node" }).click();
    const facts = dialog.getByLabel("Audit record").first();
    await facts.getByText("node eu-a100-1").waitFor();
    await facts.getByText(/bursar audit show \d+ --machine cell-eu/).waitFor();
    await facts.getByRole("link", { name: /record \d+ of cell-eu/ }).click();
    const panel = page.getByRole("complementary", { name: "Details" });
    await panel.getByRole("heading", { level: 2, name: /^Record \d+ of cell-eu$/ }).waitFor();
    await panel.getByText("drain node").first().waitFor();
    await panel.getByText("eu-a100-1").waitFor();
    await panel.getByText("in the signed journal").waitFor();
    expect(await page.getByRole("table", { name: "Audit records" }).locator("tbody tr").count()).toBe(1);
    await api.post("/v1/nodes/eu-a100-1/resume", {});
  });

  it("says what is left of many cancellations of which one failed", async () => {
    for (let i = 0; i < 3; i++) await waiting(`partly-${i}`, "umbra:mapping");
    await open("/jobs?account=umbra&q=partly-&state=queued");
    let failed = false;
    await page.route("**/v1/jobs/*/cancel", (route) => {
      if (failed) return route.continue();
      failed = true;
      return route.abort();
    });
    await page.getByRole("button", { name: "Cancel jobs by filter" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Cancel 3 jobs" }).click();
    await dialog.getByText("2 jobs of 3 cancelled, 1 not.").waitFor();
    await dialog.getByRole("button", { name: "Cancel 1 job: send again" }).click();
    await dialog.getByText("1 job cancelled.").waitFor();
    await page.unroute("**/v1/jobs/*/cancel");
    window.errors.length = 0;
  });

  it("ends the sessions of another", async () => {
    const other = await openWindow();
    const made = await api.post("/v1/keys", { id: "to-sign-out", role: "viewer", scope: "umbra", name: "to sign out" });
    await signIn(other.page, world.url, made.key);
    await open("/keys");
    await page.getByRole("button", { name: "End sessions" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Key or person").fill("to-sign-out");
    await dialog.getByRole("button", { name: "End sessions" }).click();
    await dialog.getByText("Done", { exact: true }).waitFor();
    await other.page.getByLabel("API key").waitFor();
    await other.close();
  });

  it("offers nothing that the role may not do", async () => {
    const viewer = await openWindow();
    await signIn(viewer.page, world.url, world.keys["acme-viewer"] as string);
    for (const path of ["/jobs", "/credits", "/budgets", "/cluster", "/prices"]) {
      await viewer.page.goto(world.url + path);
      await settled(viewer.page);
      expect(await viewer.page.getByRole("button", { name: /^(Submit job|Cancel .*|Grant credits|Revoke .*|Set budget|Drain .*|Set price|Preempt .*|End sessions)$/ }).count(), path).toBe(0);
    }
    for (const path of ["/keys", "/audit", "/members"]) {
      await viewer.page.goto(world.url + path);
      await viewer.page.getByText("Your key may not see this.").waitFor();
    }
    expect(viewer.errors).toEqual([]);
    await viewer.close();
    // An administrator of a tenant does not drain a node that others use as well.
    const admin = await openWindow();
    await signIn(admin.page, world.url, world.keys["acme-admin"] as string, "/cluster?region=eu&open=eu-h100-1");
    await admin.page.getByText("the platform drains it").waitFor();
    expect(await admin.page.getByRole("button", { name: "Drain node" }).count()).toBe(0);
    await admin.close();
  });

  it("leaves no error in the console", () => expect(window.errors).toEqual([]));
});
