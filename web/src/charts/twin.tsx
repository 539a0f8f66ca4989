import type { ReactNode } from "react";
import { csv, formatInstant, plainAmount, rfc3339, visible } from "../format";
import { usePreferences, useTheme } from "../ui/preferences";
import { usePageSearch } from "../ui/search";
import { amountColumn, DataTable, type TableColumn } from "../ui/table";
import { seriesColor, TimeChart, type ChartMark, type ChartSeries } from "./timechart";

/** Chart or table, as the address says. */
export function ViewSwitch() {
  const [search, change] = usePageSearch();
  const table = search.view === "table";
  return (
    <span className="switch" role="group" aria-label="View">
      <button type="button" aria-pressed={!table} onClick={() => change({ view: undefined })}>Chart</button>
      <button type="button" aria-pressed={table} onClick={() => change({ view: "table" })}>Table</button>
    </span>
  );
}

export const useTableView = () => usePageSearch()[0].view === "table";

interface Props {
  title: string;
  at: number[];
  series: ChartSeries[];
  marks?: ChartMark[];
  unit: string;
  file?: string;
  extra?: ReactNode;
  height?: number;
  /** Where the last step ends. */
  end?: number | undefined;
  /** The first and the last instant shown. */
  range?: [number, number];
  /** Parts are still read. */
  busy?: boolean;
}

/** A chart over time with its legend, its table twin and its file. */
export function ChartWithTwin({ title, at, series, marks, unit, file, extra, height, end, range, busy = false }: Props) {
  const asTable = useTableView();
  useTheme();
  return (
    <section className="section" aria-busy={busy || undefined}>
      <div className="section-head">
        <h2>{title}</h2><span className="faint small">{unit}</span><span className="grow" />
        {extra}
        {file ? <button type="button" className="button small" onClick={() => save(file, chartCsv(at, series))}>Download CSV</button> : null}
        <ViewSwitch />
      </div>
      {asTable ? <TwinTable title={title} at={at} series={series} /> : (
        <>
          <TimeChart label={title} at={at} series={series} {...(marks ? { marks } : {})} {...(height ? { height } : {})} end={end} range={range} />
          <ul className="legend" hidden={series.length < 2}>
            {series.map((one) => (
              <li key={one.name}>
                {one.area ? <i className="key" style={{ background: seriesColor(one) }} /> : <i className={`line-key tone-${one.tone}${one.dashed ? " dashed" : ""}`} />}
                {visible(one.name)}
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}

function TwinTable({ title, at, series }: Pick<Props, "title" | "at" | "series">) {
  const { zone } = usePreferences();
  const rows = at.map((time, index) => ({ time, index }));
  const columns: TableColumn<(typeof rows)[number]>[] = [
    { id: "at", header: "Time", value: (row) => row.time, cell: (row) => formatInstant(row.time, zone, false) },
    ...series.map((one, i) => amountColumn(`s${i}`, visible(one.name), rows, (row) => one.values[row.index] ?? null)),
  ];
  return <DataTable label={`${title}, as a table`} rows={rows} columns={columns} rowId={(row) => String(row.time)} tall />;
}

export function chartCsv(at: number[], series: ChartSeries[]): string {
  const head = ["time", ...series.map((one) => one.name)];
  const rows = at.map((time, i) => [rfc3339(time), ...series.map((one) => { const value = one.values[i]; return value === null || value === undefined ? "" : plainAmount(value); })]);
  return csv([head, ...rows]);
}

/** Saves text as a file of the browser. */
export function save(name: string, text: string, type = "text/csv") {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
}
