import { defineConfig } from "vite";

/** The server that `npm run dev` forwards to: `bursar serve --dev` or `bursar demo --listen 127.0.0.1:7070`. */
const server = process.env.BURSAR_SERVER ?? "http://127.0.0.1:7070";
const forward = { target: server, changeOrigin: false };

export default defineConfig({
  oxc: { jsx: { runtime: "automatic" } },
  build: {
    target: "es2022",
    outDir: "dist",
    assetsDir: "assets",
    // A data address would need an exception in the content security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
  },
  server: {
    host: "127.0.0.1",
    proxy: { "/v1": forward, "/auth": forward, "/docs": forward, "/openapi.json": forward },
  },
  test: { include: ["src/**/*.test.ts"], environment: "node" },
} as Parameters<typeof defineConfig>[0]);
