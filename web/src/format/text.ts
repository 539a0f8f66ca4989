/** Characters that change the direction of text or are not visible. */
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Text of others, with hidden characters as escapes, so that a name cannot pose as another. */
export function visible(text: string | null | undefined): string {
  if (!text) return "";
  return text.replace(HIDDEN, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** `out_of_credits` → `out of credits`. */
export const words = (name: string): string => visible(name).replaceAll("_", " ");

/** `out_of_credits` → `Out of credits`. */
export const title = (name: string): string => words(name).replace(/^./, (first) => first.toUpperCase());

export const count = (n: number, one: string, many = `${one}s`): string =>
  `${n.toLocaleString("en-US")} ${n === 1 ? one : many}`;

/** One cell of a CSV file. Text that a spreadsheet would run as a formula gets a quote in front. */
export function csvCell(value: string): string {
  const safe = /^[=+\-@\t\r]/.test(value) && !/^-?\d+(\.\d+)?$/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export const csv = (rows: string[][]): string =>
  rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
