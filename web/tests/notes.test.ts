import { afterAll, beforeAll, beforeEach, expect, inject, it } from "vitest";
import { Api } from "./setup/api";
import { openWindow, settled, signIn, type Window } from "./setup/browser";

const world = inject("world");
let window: Window;

beforeAll(async () => {
  window = await openWindow();
  await signIn(window.page, world.url, world.root);
});
afterAll(() => window.close());
beforeEach(() => window.page.unrouteAll());

/** Answers a list with pages that never end. */
async function endless(list: string, row: (number: number) => object) {
  let number = 0;
  await window.page.route((url) => url.pathname === list, (route) => {
    const data = Array.from({ length: 100 }, () => row(number++));
    return route.fulfill({ contentType: "application/json", body: JSON.stringify({ data, has_more: true, next_cursor: "more" }) });
  });
}

it.each([
  ["/accounts", "/v1/accounts", "accounts"],
  ["/keys", "/v1/keys", "keys"],
] as const)("%s says that it shows the first rows of a longer list", async (path, list, what) => {
  const [first] = (await new Api(world.url, world.root).get(`${list}?limit=1`)).data;
  await endless(list, (number) => ({ ...first, id: `row-${number}` }));
  await window.page.goto(world.url + path);
  await settled(window.page);
  await window.page.getByRole("note").filter({ hasText: `Only the first 2,000 ${what} are read` }).first().waitFor();
  expect(await window.page.locator("main tbody tr").count()).toBeLessThanOrEqual(200);
  expect(window.errors).toEqual([]);
});

it("a search with more hits than are shown says so", async () => {
  const { page } = window;
  await page.route(/\/v1\/search\?/, (route) => route.fulfill({
    contentType: "application/json",
    body: JSON.stringify({ data: [{ kind: "account", id: "acme", account: "acme", exact: false }, { kind: "account", id: "acme:nlp", account: "acme:nlp", exact: false }], truncated: true }),
  }));
  await page.goto(`${world.url}/support?q=ac`);
  await page.getByText("There are more: write more of the id or name.").waitFor();
});

it("the colours are chosen in the menu and kept, charts included", async () => {
  const { page } = window;
  const theme = () => page.evaluate(() => [document.documentElement.dataset["theme"], getComputedStyle(document.body).backgroundColor]);
  await page.goto(`${world.url}/credits?account=acme`);
  await settled(page);
  const light = await theme();
  expect(light[0]).toBe("light");
  await page.getByRole("button", { name: /admin/ }).click();
  await page.getByRole("button", { name: "Dark colours" }).click();
  const dark = await theme();
  expect([dark[0], dark[1] === light[1]]).toEqual(["dark", false]);
  await page.reload();
  await settled(page);
  expect(await theme()).toEqual(dark);
  await page.goto(`${world.url}/settings`);
  await page.getByRole("button", { name: "As the system" }).click();
  expect(await theme()).toEqual(light);
  expect(window.errors).toEqual([]);
});

it("back and forward go through the states of a page", async () => {
  const { page } = window;
  await page.goto(`${world.url}/jobs`);
  await settled(page);
  await page.getByRole("table", { name: "Jobs" }).locator("tbody tr.openable").first().click();
  await page.getByRole("complementary", { name: "Details" }).waitFor();
  await page.goBack();
  await page.getByRole("complementary", { name: "Details" }).waitFor({ state: "detached" });
  expect(new URL(page.url()).pathname).toBe("/jobs");
  await page.goForward();
  await page.getByRole("complementary", { name: "Details" }).waitFor();
  expect(window.errors).toEqual([]);
});
