import type { Micros } from "../format";

/** Sums from the first series up, so that areas lie on each other. */
export function stack(series: (Micros | null)[][]): Micros[][] {
  const points = series[0]?.length ?? 0;
  const sums: Micros[] = Array.from({ length: points }, () => 0n);
  return series.map((values) => values.map((value, i) => (sums[i] = (sums[i] ?? 0n) + (value ?? 0n))));
}
