import axe from "axe-core";
import type { Page } from "playwright-core";

/** Findings of axe that keep people out, with the first elements of each. */
export async function seriousFindings(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(async () => (globalThis as any).axe.run(document, { resultTypes: ["violations"] }));
  return violations.filter((one: any) => ["serious", "critical"].includes(one.impact))
    .map((one: any) => `${one.id}: ${one.nodes.map((node: any) => `${node.html.slice(0, 120)} ${node.any?.[0]?.message ?? ""}`).slice(0, 3).join(" | ")}`);
}
