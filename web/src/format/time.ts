/** Times are milliseconds since 1970, parsed from RFC 3339. */
export type Zone = "local" | "utc";

export function millis(time: string | null | undefined): number | undefined {
  if (!time) return undefined;
  const value = Date.parse(time);
  return Number.isNaN(value) ? undefined : value;
}

const UNITS: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1000, "s"],
];

/** At most two units: `3 d 4 h`, `12 min`, `0 s`. */
export function formatDuration(ms: number): string {
  const size = Math.abs(ms);
  const sign = ms < 0 ? "\u2212" : "";
  const first = UNITS.findIndex(([unit]) => size >= unit);
  if (first < 0) return "0 s";
  const [unit, name] = UNITS[first] as [number, string];
  const count = Math.floor(size / unit);
  const next = UNITS[first + 1];
  const rest = next ? Math.floor((size - count * unit) / next[0]) : 0;
  return `${sign}${count}\u00a0${name}${rest && next ? ` ${rest}\u00a0${next[1]}` : ""}`;
}

export function formatSeconds(seconds: number | null | undefined): string {
  return seconds === null || seconds === undefined ? "–" : formatDuration(seconds * 1000);
}

/** `in 3 h`, `12 min ago`, `now`. */
export function formatRelative(at: number, now: number): string {
  const distance = at - now;
  if (Math.abs(distance) < 1000) return "now";
  return distance > 0 ? `in ${formatDuration(distance)}` : `${formatDuration(-distance)} ago`;
}

const pad = (value: number, width = 2) => String(value).padStart(width, "0");

/** `2026-11-18 14:03:07.250 UTC` or the local zone's offset. */
export function formatInstant(at: number, zone: Zone, precise = true): string {
  const minutes = zone === "utc" ? 0 : -new Date(at).getTimezoneOffset();
  const shifted = new Date(at + minutes * 60_000);
  const day = `${shifted.getUTCFullYear()}-${pad(shifted.getUTCMonth() + 1)}-${pad(shifted.getUTCDate())}`;
  const time = `${pad(shifted.getUTCHours())}:${pad(shifted.getUTCMinutes())}`;
  if (!precise) return `${day} ${time}`;
  const seconds = `:${pad(shifted.getUTCSeconds())}.${pad(shifted.getUTCMilliseconds(), 3)}`;
  return `${day} ${time}${seconds} ${zoneName(minutes, zone)}`;
}

export function formatDay(at: number, zone: Zone): string {
  return formatInstant(at, zone, false).slice(0, 10);
}

function zoneName(minutes: number, zone: Zone): string {
  if (zone === "utc" || minutes === 0) return "UTC";
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "\u2212" : "+"}${pad(Math.floor(size / 60))}:${pad(size % 60)}`;
}

/** The first instant of the UTC month that contains `at`. */
export function monthStart(at: number, months = 0): number {
  const date = new Date(at);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + months, 1);
}

export const rfc3339 = (at: number) => new Date(at).toISOString();

/** Seconds of `90s`, `30m`, `1h30m`, `01:00:00`, `2d`; `undefined` for anything else. */
export function parseDuration(text: string): number | undefined {
  const plain = text.trim();
  const clock = /^(\d+):([0-5]\d):([0-5]\d)$/.exec(plain);
  if (clock) return Number(clock[1]) * 3600 + Number(clock[2]) * 60 + Number(clock[3]);
  if (!/^(\d+[smhd])+$/.test(plain)) return undefined;
  const size: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };
  let seconds = 0;
  for (const [, count, unit] of plain.matchAll(/(\d+)([smhd])/g)) {
    seconds += Number(count) * (size[unit as string] ?? 0);
  }
  return Number.isSafeInteger(seconds) && seconds > 0 ? seconds : undefined;
}

/** GPU milliseconds as GPU hours with two decimals. */
export function formatGpuHours(ms: number): string {
  return `${(ms / 3_600_000).toFixed(2)} GPU h`;
}
