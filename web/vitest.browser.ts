import { defineConfig } from "vitest/config";

/** Browser tests: one Chromium, one seeded server, files one after another. */
export default defineConfig({
  test: {
    include: ["tests/*.test.ts"],
    environment: "node",
    globalSetup: ["tests/setup/server.ts"],
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
