// Fails when everything that the first load needs is larger than the bound, compressed.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const MAX_BYTES = 250_000;
const files = (folder) =>
  readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? files(path) : [path];
  });
const sizes = files("dist").map((path) => [path, gzipSync(readFileSync(path), { level: 9 }).length]);
const total = sizes.reduce((sum, [, size]) => sum + size, 0);
for (const [path, size] of sizes) console.log(`${String(size).padStart(8)} ${path}`);
console.log(`${String(total).padStart(8)} bytes in all, compressed; at most ${MAX_BYTES}`);
if (total > MAX_BYTES) process.exit(1);
