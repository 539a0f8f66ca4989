import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { Api } from "./setup/api";
import { seriousFindings } from "./setup/axe";
import { openWindow, settled, signIn, type Window } from "./setup/browser";

const world = inject("world");
let window: Window;
beforeAll(async () => { window = await openWindow(); });
afterAll(() => window.close());

it("the sign-in has no serious findings, light and dark", async () => {
  const { page } = window;
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    await page.goto(world.url);
    await page.getByLabel("API key").waitFor();
    expect(await seriousFindings(page), colorScheme).toEqual([]);
  }
  await page.emulateMedia({ colorScheme: "light" });
});

it("pages of the server have no serious findings", async () => {
  const { page } = window;
  await page.goto(`${world.url}/auth/device`);
  expect(await seriousFindings(page), "signed out").toEqual([]);
  await signIn(page, world.url, world.root);
  const { path } = await new Api(world.url, "none").post("/auth/device/code", { client: "ada@login-1" });
  for (const address of ["/auth/device", path, "/auth/device?code=BBBB-BBBB", "/docs/problems/conflict"]) {
    await page.goto(world.url + address);
    expect(await seriousFindings(page), address).toEqual([]);
  }
});

it("dialogs, side panels and table twins have no serious findings", async () => {
  const { page } = window;
  for (const [path, button] of [["/jobs", "Submit job"], ["/credits?account=acme", "Grant credits"], ["/keys", "Make key"]] as const) {
    await page.goto(world.url + path);
    await settled(page);
    await page.getByRole("button", { name: button, exact: true }).click();
    await page.getByRole("dialog").waitFor();
    expect(await seriousFindings(page), button).toEqual([]);
  }
  const job = (await new Api(world.url, world.root).get("/v1/jobs?account=acme&limit=1")).data[0].id;
  for (const path of [`/jobs?open=${job}`, "/credits?account=acme:nlp&open=nlp-welcome", "/credits?account=acme:nlp&view=table", "/spend?account=acme&view=table", "/cluster?region=eu&view=table"]) {
    await page.goto(world.url + path);
    await settled(page);
    expect(await seriousFindings(page), path).toEqual([]);
  }
});

it("pages on a phone have no serious findings", async () => {
  const { page } = window;
  await page.setViewportSize({ width: 390, height: 800 });
  for (const path of ["/?as=researcher&account=acme:nlp", "/jobs", "/queue?region=eu"]) {
    await page.goto(world.url + path);
    await settled(page);
    expect(await seriousFindings(page), path).toEqual([]);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
});
