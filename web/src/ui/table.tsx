import {
  flexRender, functionalUpdate, getCoreRowModel, getSortedRowModel, useReactTable, type Column, type ColumnDef, type SortingState, type Updater,
} from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, type ReactNode } from "react";
import { amountParts, micros, visible, type Micros } from "../format";
import { Amount, Skeleton } from "./basics";
import { useRowKeys } from "./rowkeys";
import { usePageSearch } from "./search";

/** Shorter tables are drawn whole. */
const VIRTUAL_FROM = 80;
const ROW_HEIGHT = 32;
const OVERSCAN = 12;

export interface TableColumn<T> {
  id: string;
  header: string;
  /** The unit, once in the header. */
  unit?: string;
  cell: (row: T) => ReactNode;
  /** For sorting; a column without it is not sorted. */
  value?: (row: T) => string | number | bigint | undefined;
  num?: boolean;
  foot?: ReactNode;
  phone?: boolean;
}

/** A column of amounts with aligned decimal points. */
export function amountColumn<T>(id: string, header: string, rows: readonly T[], value: (row: T) => string | Micros | null | undefined, more: Partial<TableColumn<T>> = {}): TableColumn<T> {
  const number = (row: T) => {
    const found = value(row);
    return typeof found === "bigint" ? found : micros(found);
  };
  const pad = rows.reduce((most, row) => Math.max(most, amountParts(number(row)).fraction.length), 0);
  return {
    id, header, num: true, value: number,
    cell: (row) => {
      const found = value(row);
      return found === null || found === undefined ? <Amount value={found} /> : <Amount value={found} pad={pad} />;
    },
    ...more,
  };
}

interface TableProps<T> {
  label: string;
  rows: readonly T[] | undefined;
  columns: TableColumn<T>[];
  rowId: (row: T) => string;
  onOpen?: (row: T) => void;
  open?: string | undefined;
  empty?: ReactNode;
  /** Called when the end of the rows comes near. */
  onEnd?: () => void;
  tall?: boolean;
  sort?: SortingState;
}

function compare(a: unknown, b: unknown): number {
  if (a === b) return 0;
  if (a === undefined || a === null) return 1;
  if (b === undefined || b === null) return -1;
  return (a as number) < (b as number) ? -1 : 1;
}

function definitions<T>(columns: TableColumn<T>[]): ColumnDef<T>[] {
  return columns.map((column) => ({
    id: column.id,
    header: column.header,
    cell: ({ row }) => column.cell(row.original),
    enableSorting: column.value !== undefined,
    ...(column.value ? { accessorFn: column.value } : {}),
    sortingFn: (a, b, id) => compare(a.getValue(id), b.getValue(id)),
    sortUndefined: "last" as const,
    meta: column,
  }));
}

/** The name of a table in the address. */
const slug = (label: string) => label.toLowerCase().replace(/[^a-z0-9]+/g, "-");

/** The order in an address, `jobs.-cost`, if it is of this table. */
export function parseSort(text: string | undefined, label: string, columns: readonly string[]): SortingState | undefined {
  const found = /^([a-z0-9-]+)\.(-?)(.+)$/.exec(text ?? "");
  if (!found || found[1] !== slug(label) || !columns.includes(found[3] ?? "")) return undefined;
  return [{ id: found[3] ?? "", desc: found[2] === "-" }];
}

export const writeSort = (label: string, [first]: SortingState): string | undefined => (first ? `${slug(label)}.${first.desc ? "-" : ""}${first.id}` : undefined);

/** The order of a table is part of the page's address. */
function useSorting<T>(label: string, columns: TableColumn<T>[], fallback: SortingState | undefined): [SortingState, (change: Updater<SortingState>) => void] {
  const [search, change] = usePageSearch();
  const sortable = columns.filter(({ value }) => value).map(({ id }) => id).join(" ");
  const first = useRef(fallback ?? []);
  // The same order is the same object: the table sorts again when it changes.
  const sorting = useMemo(() => parseSort(search.sort, label, sortable.split(" ")) ?? first.current, [search.sort, label, sortable]);
  return [sorting, (next) => change({ sort: writeSort(label, functionalUpdate(next, sorting)) }, true)];
}

/** Rows of 32 pixels; long lists keep only the visible rows in the document. */
export function DataTable<T>(props: TableProps<T>) {
  const { rows, columns, rowId, onOpen, open, label } = props;
  const [sorting, setSorting] = useSorting(label, columns, props.sort);
  const data = useMemo(() => (rows ? [...rows] : []), [rows]);
  const defs = useMemo(() => definitions(columns), [columns]);
  const table = useReactTable({
    data, columns: defs, state: { sorting }, onSortingChange: setSorting, getRowId: rowId, autoResetAll: false,
    getCoreRowModel: getCoreRowModel(), getSortedRowModel: getSortedRowModel(),
  });
  const all = table.getRowModel().rows;
  const frame = useRef<HTMLDivElement>(null);
  const isVirtual = all.length > VIRTUAL_FROM;
  const virtual = useVirtualizer({
    count: isVirtual ? all.length : 0, getScrollElement: () => frame.current, estimateSize: () => ROW_HEIGHT, overscan: OVERSCAN,
  });
  const items = isVirtual ? virtual.getVirtualItems() : [];
  const last = items.at(-1)?.index ?? 0;
  const { onEnd } = props;
  useEffect(() => {
    if (isVirtual ? last >= all.length - 40 : all.length > 0) onEnd?.();
  }, [isVirtual, last, all.length, onEnd]);
  const cursor = useRowKeys(frame, all.length, (index) => { const row = all[index]; if (row) onOpen?.(row.original); }, (index) => { if (isVirtual) virtual.scrollToIndex(index); });
  const shown = isVirtual ? items.map((item) => [item.index, all[item.index]] as const) : all.map((row, index) => [index, row] as const);
  const before = items[0]?.start ?? 0;
  const after = isVirtual ? virtual.getTotalSize() - (items.at(-1)?.end ?? 0) : 0;
  if (rows && rows.length === 0 && props.empty) return <>{props.empty}</>;
  return (
    <div ref={frame} className={isVirtual || props.tall ? "table-wrap tall" : "table-wrap"} tabIndex={0} role="region" aria-label={label} data-rows={all.length}>
      <table className="data" aria-rowcount={all.length + 1} aria-label={label}>
        <thead>
          <tr>{table.getFlatHeaders().map((header) => <HeaderCell key={header.id} column={header.column} />)}</tr>
        </thead>
        <tbody>
          {!rows ? Array.from({ length: 5 }, (_, i) => (
            <tr key={i}>{columns.map((column, j) => <td key={column.id}><Skeleton width={`${70 - ((i * 3 + j * 7) % 30)}%`} /></td>)}</tr>
          )) : null}
          {before > 0 ? <tr className="spacer" aria-hidden="true"><td colSpan={columns.length} style={{ height: before }} /></tr> : null}
          {shown.map(([index, row]) => row ? (
            <tr
              key={row.id} aria-rowindex={index + 2} data-row={row.id}
              className={`${onOpen ? "openable" : ""}${cursor === index ? " cursor" : ""}`}
              aria-selected={open === row.id ? true : undefined}
              onClick={onOpen ? (event) => { if (!(event.target as Element).closest("a,button,input")) onOpen(row.original); } : undefined}
            >
              {row.getVisibleCells().map((cell, i) => (
                <td key={cell.id} className={cellClass(cell.column)}>
                  {flexRender(cell.column.columnDef.cell, cell.getContext())}
                  {onOpen && i === 0 ? <button type="button" className="row-open" aria-label={`Details of ${visible(row.id)}`} aria-expanded={open === row.id} onClick={() => onOpen(row.original)}>›</button> : null}
                </td>
              ))}
            </tr>
          ) : null)}
          {after > 0 ? <tr className="spacer" aria-hidden="true"><td colSpan={columns.length} style={{ height: after }} /></tr> : null}
        </tbody>
        {columns.some((column) => column.foot !== undefined) ? (
          <tfoot><tr>{columns.map((column) => <td key={column.id} className={column.num ? "num" : ""}>{column.foot}</td>)}</tr></tfoot>
        ) : null}
      </table>
    </div>
  );
}

function cellClass<T>(column: Column<T>): string {
  const meta = column.columnDef.meta as TableColumn<T>;
  return `${meta.num ? "num" : ""}${meta.phone === false ? " hide-phone" : ""}`;
}

function HeaderCell<T>({ column }: { column: Column<T> }) {
  const meta = column.columnDef.meta as TableColumn<T>;
  const sorted = column.getIsSorted();
  const text = <>{meta.header}{meta.unit ? <span className="unit"> {meta.unit}</span> : null}</>;
  const order = sorted ? (sorted === "asc" ? "ascending" : "descending") : undefined;
  return (
    <th scope="col" className={cellClass(column)} aria-sort={order}>
      {column.getCanSort() ? (
        <button type="button" onClick={column.getToggleSortingHandler()}>{text}<span aria-hidden="true">{sorted ? (sorted === "asc" ? " ↑" : " ↓") : ""}</span></button>
      ) : text}
    </th>
  );
}
