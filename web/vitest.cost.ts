import { defineConfig } from "vitest/config";

/** `npm run cost`: what the dashboard costs, printed. */
export default defineConfig({
  test: { include: ["tests/cost.ts"], environment: "node", testTimeout: 600_000, hookTimeout: 120_000 },
});
