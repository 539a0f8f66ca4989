/**
 * Amounts are decimal strings with at most six decimals. They are kept as micro-credits in a
 * bigint and never become floating-point numbers, except to place pixels (`pixels`).
 */
export type Micros = bigint;

const SCALE = 1_000_000n;
const FORM = /^(-?)(\d+)(?:\.(\d{1,6}))?$/;

/** Micro-credits of an amount as the API writes it. */
export function micros(text: string | number | null | undefined): Micros {
  if (text === null || text === undefined) return 0n;
  const found = FORM.exec(String(text));
  if (!found) throw new RangeError(`not an amount: ${String(text)}`);
  const [, sign, whole, fraction = ""] = found;
  const value = BigInt(whole ?? "0") * SCALE + BigInt(fraction.padEnd(6, "0"));
  return sign === "-" ? -value : value;
}

/** Micro-credits of what a person typed, or `undefined` if it is not an amount. */
export function parseAmount(text: string): Micros | undefined {
  const plain = text.trim().replace(/[,\u2009\u202f]/g, "");
  return /^(0|[1-9]\d*)(\.\d{1,6})?$/.test(plain) ? micros(plain) : undefined;
}

/** The shortest form that the API accepts: `28.8`. */
export function plainAmount(value: Micros): string {
  const { sign, whole, fraction } = amountParts(value);
  return sign + whole.replaceAll(",", "") + (fraction ? `.${fraction}` : "");
}

export interface AmountParts {
  sign: "" | "-";
  /** With thousands separators. */
  whole: string;
  /** Without trailing zeros; empty for a whole number. */
  fraction: string;
}

export function amountParts(value: Micros): AmountParts {
  const size = value < 0n ? -value : value;
  const whole = (size / SCALE).toString().replace(/\B(?=(\d{3})+$)/g, ",");
  const fraction = (size % SCALE).toString().padStart(6, "0").replace(/0+$/, "");
  return { sign: value < 0n ? "-" : "", whole, fraction };
}

/** `1,234.5`: thousands separators, shortest fraction. The minus is a true minus sign. */
export function formatAmount(value: Micros | string | number | null | undefined): string {
  const { sign, whole, fraction } = amountParts(typeof value === "bigint" ? value : micros(value));
  return (sign ? "\u2212" : "") + whole + (fraction ? `.${fraction}` : "");
}

/** At most two decimals, marked with `≈` when something was cut: for axes and narrow labels. */
export function shortAmount(value: Micros): string {
  const unit = 10_000n;
  const cut = (value / unit) * unit;
  return (cut === value ? "" : "≈ ") + formatAmount(cut);
}

export const sum = (values: Iterable<Micros>): Micros => {
  let total = 0n;
  for (const value of values) total += value;
  return total;
};

export const maxMicros = (values: Iterable<Micros>): Micros => {
  let most = 0n;
  for (const value of values) if (value > most) most = value;
  return most;
};

/** Part of a whole in thousandths, rounded down; 0 when the whole is 0. */
export function perMille(part: Micros, whole: Micros): number {
  return whole <= 0n ? 0 : Number((part * 1000n) / whole);
}

/** `37.5 %` from two amounts, rounded to the nearest tenth; never 100 % of a whole that is not reached. */
export function formatShare(part: Micros, whole: Micros): string {
  const nearest = whole <= 0n ? 0 : Number((part * 2000n + whole) / (whole * 2n));
  const share = part < whole ? Math.min(nearest, 999) : nearest;
  return `${Math.trunc(share / 10)}${share % 10 ? `.${Math.abs(share % 10)}` : ""} %`;
}

/** Only for the geometry of a drawing. */
export function pixels(value: Micros): number {
  return Number(value) / 1_000_000;
}

/** The cost of a rate over a time, rounded down to the micro-credit like the meter. */
export function costOf(perHour: Micros, ms: number): Micros {
  return ms <= 0 ? 0n : (perHour * BigInt(Math.trunc(ms))) / 3_600_000n;
}
