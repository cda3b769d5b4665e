import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    globalSetup: ["tests/home.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // On a busy machine a deadline passes now and then. What needed a second attempt is listed at the end of `cargo xtask test`.
    retry: 1,
    // Native modules and worker threads of their own: processes keep the files apart.
    pool: "forks",
    maxWorkers: 2,
    // What programs print is of interest only where they fail.
    silent: "passed-only",
  },
});
