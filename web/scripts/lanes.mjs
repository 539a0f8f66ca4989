// Runs the browser tests in two lanes side by side, each against a seeded server of its own. Arguments
// go to vitest: `npm run browser -- actions` runs one file in its lane.
import { spawn } from "node:child_process";

const LANES = ["a-m", "n-z"];
const started = Date.now();

const run = (lane) => new Promise((done) => {
  const child = spawn("npx", ["vitest", "run", "--config", "vitest.browser.ts", "--passWithNoTests", ...process.argv.slice(2)], {
    env: { ...process.env, LANE: lane }, stdio: ["ignore", "pipe", "pipe"],
  });
  for (const stream of [child.stdout, child.stderr]) {
    let rest = "";
    stream.on("data", (chunk) => {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop();
      for (const line of lines) console.log(`${lane}  ${line}`);
    });
  }
  child.on("exit", (code) => done(code ?? 1));
});

const codes = await Promise.all(LANES.map(run));
console.log(`browser tests: ${Math.round((Date.now() - started) / 1000)} s`);
process.exit(Math.max(...codes));
