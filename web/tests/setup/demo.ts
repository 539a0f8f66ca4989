import { spawn, type ChildProcess } from "node:child_process";
import { resolve } from "node:path";
import { BINARY } from "./server";

/** Starts `bursar demo` and reads its address and key. */
export async function startDemo(): Promise<{ process: ChildProcess; url: string; key: string }> {
  const demo = spawn(BINARY, ["demo"], { stdio: ["ignore", "pipe", "ignore"], env: { ...process.env, BURSAR_WEB_DIST: resolve("dist") } });
  return new Promise((done, fail) => {
    let text = "";
    demo.stdout?.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      const url = /runs at (http:\S+)/.exec(text)?.[1];
      const key = /with the key (\S+)/.exec(text)?.[1];
      if (url && key) done({ process: demo, url, key });
    });
    demo.on("exit", () => fail(new Error(`the demo ended: ${text}`)));
  });
}
