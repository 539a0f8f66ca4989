import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { Api } from "./setup/api";
import { openWindow, settled, signIn, type Window } from "./setup/browser";
import { addresses } from "./setup/pages";

const world = inject("world");
const root = new Api(world.url, world.root);
let umbra: Window;
let acmeJob = "";
let umbraJob = "";
/** Everything the pages of the other tenant were answered, and what could not be read of it. */
const answers: { url: string; body: string }[] = [];
const unread: string[] = [];

/** Words that only the first tenant has. */
const SECRETS = /acme|nlp-welcome|vision-h100|finetune-chat|pretrain-7b|segment-city|PO-4711/;

beforeAll(async () => {
  acmeJob = (await root.get("/v1/jobs?account=acme&limit=1")).data[0].id;
  umbraJob = (await root.get("/v1/jobs?account=umbra&limit=1")).data[0].id;
  umbra = await openWindow();
  // Each answer is read before the page has it, so none is missed when the page moves on.
  await umbra.page.route((url) => url.pathname.startsWith("/v1/") && url.pathname !== "/v1/events", async (route) => {
    const url = route.request().url();
    const response = await route.fetch().catch(() => undefined);
    const body = await response?.text().catch(() => undefined);
    if (!response || body === undefined) {
      unread.push(url);
      return route.abort().catch(() => {});
    }
    answers.push({ url, body });
    // The page may have moved on.
    return route.fulfill({ response, body }).catch(() => {});
  });
  await signIn(umbra.page, world.url, world.keys["umbra-admin"] as string);
});
afterAll(() => umbra.close());

describe("a tenant", () => {
  it("sees nothing of another on any page", async () => {
    for (const [name, path] of Object.entries(addresses(umbraJob))) {
      await umbra.page.goto(world.url + path.replaceAll("acme:nlp", "umbra:mapping").replaceAll("acme", "umbra"));
      await settled(umbra.page);
      expect(await umbra.page.locator("body").innerText(), name).not.toMatch(SECRETS);
    }
    expect(answers.length).toBeGreaterThan(40);
    for (const { url, body } of answers) expect(body, url).not.toMatch(SECRETS);
    expect(unread).toEqual([]);
    expect(umbra.errors).toEqual([]);
  });

  it("gets the same answer for what belongs to another as for what does not exist", async () => {
    for (const [theirs, none] of [[`/jobs/${acmeJob}`, "/jobs/job_none"], ["/credits?account=acme", "/credits?account=none"], ["/budgets?account=acme", "/budgets?account=none"], [`/support?q=${acmeJob}`, "/support?q=job_none"]] as const) {
      const texts: string[] = [];
      for (const path of [theirs, none]) {
        await umbra.page.goto(world.url + path);
        await settled(umbra.page);
        const text = await umbra.page.locator("main").innerText();
        texts.push(text.replace(/req_\w+/g, "").replaceAll(acmeJob, "ID").replaceAll("job_none", "ID").replace(/\bacme\b/g, "none"));
      }
      expect(texts[0], theirs).toBe(texts[1]);
    }
    umbra.errors.length = 0;
  });

  it("is refused every call that the pages of another make", async () => {
    const acme = await openWindow();
    const calls = new Set<string>();
    const quotes: string[] = [];
    acme.page.on("request", (request) => {
      const url = new URL(request.url());
      if (request.method() === "POST" && url.pathname === "/v1/quotes") quotes.push(request.postData() ?? "");
      if (request.method() === "GET" && url.pathname.startsWith("/v1/") && url.pathname !== "/v1/events") calls.add(url.pathname + url.search);
    });
    await signIn(acme.page, world.url, world.keys["acme-admin"] as string);
    for (const path of Object.values(addresses(acmeJob))) {
      await acme.page.goto(world.url + path);
      await settled(acme.page);
    }
    await acme.page.goto(`${world.url}/jobs`);
    await acme.page.getByRole("button", { name: "Submit job" }).click();
    await acme.page.getByRole("dialog").getByLabel("GPU types").fill("H100");
    await acme.page.getByText(/A hold of 2\.5 credits/).waitFor();
    await acme.close();
    expect(calls.size).toBeGreaterThan(30);
    const other = new Api(world.url, world.keys["umbra-admin"] as string);
    for (const call of calls) {
      const { status, body } = await other.call("GET", call);
      if (status < 300) expect(JSON.stringify(body), call).not.toMatch(SECRETS);
      else expect([403, 404, 422], `${call} ${status}`).toContain(status);
    }
    expect(quotes.length).toBeGreaterThan(0);
    for (const quote of quotes) {
      const { status, body } = await other.call("POST", "/v1/quotes", JSON.parse(quote));
      expect([403, 404], quote).toContain(status);
      expect(JSON.stringify(body).replaceAll(JSON.parse(quote).account, ""), quote).not.toMatch(SECRETS);
    }
  });

  it("does not see events of another", async () => {
    const seen = await umbra.page.evaluate(async () => {
      const stop = new AbortController();
      const response = await fetch("/v1/events?after=0", { signal: stop.signal });
      const reader = response.body!.getReader();
      let text = "";
      while (text.length < 20_000) {
        const { done, value } = await reader.read();
        if (done) break;
        text += new TextDecoder().decode(value);
      }
      stop.abort();
      return text;
    });
    expect(seen).toContain("umbra");
    expect(seen).not.toMatch(SECRETS);
  });
});
