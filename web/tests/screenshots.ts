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
  const draw = (page: string) => window.page.screenshot({ path: resolve(FOLDER, `${page}-${name}.png`), animations: "disabled" });
  await window.page.goto(url);
  await window.page.getByLabel("API key").waitFor();
  if (!WANTED || WANTED.includes("sign-in")) await draw("sign-in");
  await signIn(window.page, url, root);
  for (const [page, path] of Object.entries(addresses(data[0].id))) {
    if (WANTED && !WANTED.includes(page)) continue;
    await window.page.goto(url + path);
    await settled(window.page);
    // Charts are drawn in the frame after their data.
    await window.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    await draw(page);
  }
  if (!WANTED || WANTED.includes("device")) {
    const begun = await new Api(url, "none").post("/auth/device/code", { client: "ada@login-1" });
    await window.page.goto(url + begun.path);
    await draw("device");
  }
  await window.close();
});
