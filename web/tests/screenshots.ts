import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { inject, it } from "vitest";
import { Api } from "./setup/api";
import { openWindow, settled, signIn } from "./setup/browser";
import { addresses } from "./setup/pages";

const FOLDER = process.env.SCREENSHOTS ?? resolve("../docs/images");
const WANTED = process.env.PAGES?.split(",");

it.each([["light", false], ["dark", true]] as const)("every page is drawn, %s", async (name, dark) => {
  mkdirSync(FOLDER, { recursive: true });
  const { url, root } = inject("world");
  const { data } = await new Api(url, root).get("/v1/jobs?state=running&account=acme&limit=5");
  const window = await openWindow({ dark });
  await signIn(window.page, url, root);
  for (const [page, path] of Object.entries(addresses(data[0].id))) {
    if (WANTED && !WANTED.includes(page)) continue;
    await window.page.goto(url + path);
    await settled(window.page);
    // Charts are drawn in the frame after their data.
    await window.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    await window.page.screenshot({ path: resolve(FOLDER, `${page}-${name}.png`), animations: "disabled" });
  }
  await window.close();
});
