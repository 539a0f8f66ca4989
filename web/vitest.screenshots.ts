import { defineConfig } from "vitest/config";

/** `npm run screenshots`: every page, light and dark, into docs/images. */
export default defineConfig({
  test: {
    include: ["tests/screenshots.ts"],
    environment: "node",
    globalSetup: ["tests/setup/server.ts"],
    testTimeout: 300_000,
    hookTimeout: 120_000,
  },
});
