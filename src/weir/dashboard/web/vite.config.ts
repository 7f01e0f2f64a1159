import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: { outDir: "../static", emptyOutDir: true, target: "es2022", chunkSizeWarningLimit: 400 },
  server: { proxy: { "/api": "http://127.0.0.1:8420" } },
});
