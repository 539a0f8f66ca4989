import { useEffect, useRef, useState, type RefObject } from "react";
import { hasShortcuts } from "./preferences";

/** Whether a key press is meant for the page, not for a field. */
export function isForPage(event: KeyboardEvent): boolean {
  if (event.metaKey || event.ctrlKey || event.altKey || !hasShortcuts()) return false;
  const target = event.target as HTMLElement | null;
  if (document.querySelector("dialog[open]")) return false;
  return !target?.closest("input, textarea, select, [contenteditable]");
}

/** The next row for a key: `j` down, `k` up; `undefined` for other keys. */
export function moveCursor(key: string, cursor: number, rows: number): number | undefined {
  if (rows === 0) return undefined;
  if (key === "j") return Math.min(cursor + 1, rows - 1);
  if (key === "k") return Math.max(cursor - 1, 0);
  return undefined;
}

/** `j` and `k` move through the rows of the page's first table, `o` opens one. */
export function useRowKeys(frame: RefObject<HTMLElement | null>, rows: number, open: (index: number) => void, show: (index: number) => void): number {
  const [cursor, setCursor] = useState(-1);
  const handlers = useRef({ open, show, cursor, rows });
  handlers.current = { open, show, cursor, rows };
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const now = handlers.current;
      if (!isForPage(event) || !frame.current || frame.current !== document.querySelector("main .table-wrap")) return;
      if (event.key === "o" && now.cursor >= 0) return now.open(now.cursor);
      const next = moveCursor(event.key, now.cursor, now.rows);
      if (next === undefined) return;
      setCursor(next);
      now.show(next);
      frame.current.querySelector(`[aria-rowindex="${next + 2}"]`)?.scrollIntoView({ block: "nearest" });
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [frame]);
  return cursor;
}
