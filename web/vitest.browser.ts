import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Files by name, in every run. */
class ByName extends BaseSequencer {
  override async sort(files: TestSpecification[]) {
    return [...files].sort((a, b) => (a.moduleId < b.moduleId ? -1 : 1));
  }
}

/** Browser tests: one seeded server, files one after another. A lane is the range of their first letters. */
export default defineConfig({
  test: {
    include: [`tests/[${process.env.LANE ?? "a-z"}]*.test.ts`],
    environment: "node",
    globalSetup: ["tests/setup/server.ts"],
    fileParallelism: false,
    sequence: { sequencer: ByName },
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
