import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { Api } from "./setup/api";
import { openWindow, settled, signIn, type Window } from "./setup/browser";
import { addresses } from "./setup/pages";
import { ownServer, type OwnServer } from "./setup/server";

const world = inject("world");

describe("a server on which nothing has happened", () => {
  let server: OwnServer;
  let window: Window;
  beforeAll(async () => {
    server = await ownServer();
    window = await openWindow();
    await signIn(window.page, server.url, server.api.key);
  });
  afterAll(async () => {
    await window.close();
    await server.close();
  });

  it("has pages that say what would be here", async () => {
    const { page } = window;
    const paths = Object.entries(addresses("job_none")).filter(([name]) => !["job", "support"].includes(name)).map(([name, path]) => [name, path.replace(/[?&]account=[^&]*/, "").replace(/[?&]region=[^&]*/, "")] as const);
    for (const [name, path] of [...paths, ["support", "/support?q=nothing"] as const]) {
      await page.goto(server.url + path);
      await settled(page);
      const text = await page.locator("main").innerText();
      expect(text, name).not.toMatch(/NaN|undefined|\[object|Infinity/);
      if (name.startsWith("home-") && name !== "home-operator" || ["credits", "spend", "budgets"].includes(name)) expect(text, name).toContain("No account yet");
      // Nothing was read, so nothing is claimed.
      expect(text, name).not.toContain("Nothing expires");
    }
    await page.goto(`${server.url}/prices`);
    await page.getByText("No price is set").waitFor();
    await page.goto(`${server.url}/jobs`);
    await page.getByText("No job matches").waitFor();
    expect(window.errors).toEqual([]);
  });
});

describe("a server that does not answer", () => {
  let window: Window;
  let job = "";
  beforeAll(async () => {
    job = (await new Api(world.url, world.root).get("/v1/jobs?state=running&account=acme&limit=1")).data[0].id;
    window = await openWindow();
    await signIn(window.page, world.url, world.root);
    // Only what pages read fails: the session, and the clock of the shell, are there.
    await window.page.route(/\/v1\/(?!session|events|prices\?limit=1)|\/readyz/, (route) => route.fulfill({
      status: 503, contentType: "application/problem+json",
      body: JSON.stringify({ type: "about:blank", title: "Not served now", status: 503, detail: "a machine is being taken over; try again", code: "unavailable", retryable: false, request_id: "req_test" }),
    }));
  });
  afterAll(() => window.close());

  it.each(Object.keys(addresses("")).filter((name) => name !== "settings"))("%s says so, claims nothing and waits for nothing", async (name) => {
    const { page } = window;
    await page.goto(world.url + addresses(job)[name]);
    await page.getByText("Not served now").first().waitFor();
    await settled(page);
    const text = await page.locator("main").innerText();
    expect(text).toContain("req_test");
    expect(text).not.toMatch(/Nothing expires|Nothing is recorded|No job waits|No job matches|No record matches|No grant yet|No node is registered|Nothing runs or waits|Nothing was spent|No price is set|NaN|undefined/);
  });
});
