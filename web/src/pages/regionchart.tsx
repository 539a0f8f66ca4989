import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { serverNow } from "../api/client";
import { api } from "../api/queries";
import type { RegionSeries } from "../api/reports";
import { ChartWithTwin } from "../charts/twin";
import type { ChartSeries } from "../charts/timechart";
import { formatInstant, micros, millis, rfc3339 } from "../format";
import { ProblemNote } from "../ui/messages";
import { Choice, Section } from "../ui/page";
import { usePreferences } from "../ui/preferences";
import { usePageSearch } from "../ui/search";

const HOUR = 3_600_000;
const SPANS = [["1", "1 h"], ["24", "24 h"], ["168", "7 d"], ["720", "30 d"]] as const;
const POINTS = 145;
const METRICS = [
  ["gpus_usable", { name: "GPUs usable", tone: "green", dashed: true }],
  ["gpus_allocated", { name: "GPUs allocated", tone: "blue" }],
  ["jobs_waiting", { name: "Jobs waiting", tone: "violet" }],
] as const;

/** The series on one axis of time. Instants of which nothing is known are absent from all. */
export function regionChart(all: RegionSeries[]): { at: number[]; series: ChartSeries[] } {
  const times = [...new Set(all.flatMap(({ points }) => points.map((point) => millis(point.at) ?? 0)))].sort((a, b) => a - b);
  const series = METRICS.flatMap(([metric, look]): ChartSeries[] => {
    const found = all.find((one) => one.metric === metric);
    const values = new Map(found?.points.map((point) => [millis(point.at) ?? 0, micros(point.value)]));
    return found ? [{ ...look, step: true, values: times.map((at) => values.get(at) ?? null) }] : [];
  });
  return { at: times, series };
}

/** GPUs and waiting jobs of a region over time. */
export function RegionChart({ region }: { region: string }) {
  const [search, change] = usePageSearch();
  const { zone } = usePreferences();
  // Whole minutes, as the server records them; read again every minute with the rest of the page.
  const minute = Math.floor(serverNow() / 60_000) * 60_000;
  const day = useQuery({ ...api.regionSeries(region, { metric: "gpus_usable", from: rfc3339(minute - 24 * HOUR), to: rfc3339(minute), points: 25 }), enabled: region !== "" });
  // A server that has just started shows its first hour.
  const isNew = (day.data?.points.length ?? 0) < 2;
  const hours = SPANS.find(([value]) => value === search.interval)?.[0] ?? (isNew ? "1" : "24");
  const from = minute - Number(hours) * HOUR;
  const results = useQueries({ queries: METRICS.map(([metric]) => ({ ...api.regionSeries(region, { metric, from: rfc3339(from), to: rfc3339(minute), points: POINTS }), enabled: region !== "" })) });
  const stamp = results.map((result) => result.dataUpdatedAt).join();
  const { at, series } = useMemo(() => regionChart(results.flatMap((result) => result.data ?? [])), [stamp]);
  const first = at[0];
  const error = day.error ?? results.find((result) => result.error)?.error;
  const isKnown = day.data !== undefined && results.every((result) => result.data);
  if (error && !isKnown) return <Section title="Use over time"><ProblemNote error={error} retry={() => { void day.refetch(); for (const result of results) void result.refetch(); }} /></Section>;
  if (day.isPending || results.some((result) => result.isPending)) return <div aria-busy="true" style={{ height: 180 }}><span className="sr">Loading</span></div>;
  return (
    <>
      <ChartWithTwin
        title="Use over time" unit="GPUs and jobs" at={at} series={series} range={[from, minute]} height={180} file={`region-${region}.csv`}
        extra={<Choice label="Time" value={hours} choices={SPANS} onChange={(value) => change({ interval: value })} />}
      />
      {first === undefined || first > from + 60_000 + (Number(hours) * HOUR) / POINTS ? <p className="muted small">{first === undefined ? "Nothing is recorded yet." : `Recorded since ${formatInstant(first, zone, false)}.`} A server records these figures each minute while it runs, and begins anew when it starts.</p> : null}
    </>
  );
}
