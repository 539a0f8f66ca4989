import type { Grant } from "../api/types";
import { micros, millis, type Micros } from "../format";

const HOUR = 3_600_000n;

export interface BurnDown {
  at: number[];
  /** What is left of each grant at each instant, soonest expiry first. */
  grants: { id: string; expiresAt: number | undefined; left: Micros[] }[];
  /** When everything that can be spent is gone; absent if it lasts beyond the horizon. */
  emptyAt: number | undefined;
  /** What expires unspent at this rate within the horizon. */
  lost: Micros;
}

interface Lot {
  id: string;
  expiresAt: number | undefined;
  left: Micros;
  startsAt: number;
}

/**
 * What is left of each grant if spending goes on at the present rate: the grant that expires
 * first is spent first. A grant that expires drops to zero. Grants that start later count from
 * their start.
 */
export function burnDown(grants: Grant[], perHour: Micros, now: number, horizon: number): BurnDown {
  const lots = grants
    .map((grant): Lot => ({ id: grant.id, expiresAt: millis(grant.expires_at), left: micros(grant.available), startsAt: millis(grant.effective_at) ?? now }))
    .filter((lot) => lot.left > 0n && (lot.expiresAt === undefined || lot.expiresAt > now))
    .sort((a, b) => (a.expiresAt ?? Infinity) - (b.expiresAt ?? Infinity));
  const end = now + horizon;
  const instants = new Set([now, end]);
  for (const lot of lots) {
    if (lot.expiresAt !== undefined && lot.expiresAt < end) instants.add(lot.expiresAt - 1).add(lot.expiresAt);
    if (lot.startsAt > now && lot.startsAt < end) instants.add(lot.startsAt);
  }
  for (let i = 1n; i < 48n; i += 1n) instants.add(now + Number((BigInt(Math.trunc(horizon)) * i) / 48n));
  const at = [...instants].sort((a, b) => a - b);
  const series = lots.map((lot) => ({ id: lot.id, expiresAt: lot.expiresAt, left: [] as Micros[] }));
  let lost = 0n;
  let emptyAt: number | undefined;
  at.forEach((time, i) => {
    const before = at[i - 1] ?? time;
    let due = (perHour * BigInt(Math.trunc(time - before))) / HOUR;
    for (const lot of lots) {
      if (lot.startsAt > before || lot.left === 0n) continue;
      const taken = due < lot.left ? due : lot.left;
      lot.left -= taken;
      due -= taken;
    }
    lots.forEach((lot, j) => {
      if (lot.expiresAt !== undefined && lot.expiresAt <= time && lot.left > 0n) {
        lost += lot.left;
        lot.left = 0n;
      }
      series[j]?.left.push(lot.startsAt > time ? 0n : lot.left);
    });
    const isEmpty = lots.every((lot) => lot.left === 0n);
    if (isEmpty && emptyAt === undefined && i > 0) emptyAt = time;
  });
  return { at, grants: series, emptyAt, lost };
}

/** The averages whose least and greatest are the edges of the band, in days. */
const BAND_WINDOWS = [1, 3, 7];
export const BAND_DAYS = Math.max(...BAND_WINDOWS);
const HOURS_A_DAY = 24;

/**
 * The least and the greatest of the average rates of the last day, three days and week, in credits
 * per hour, from spending by hour. Days are 24 hours that end now.
 */
export function rateBand(points: { at: string; amount: string }[], now: number): { low: Micros; high: Micros } | undefined {
  const rates = BAND_WINDOWS.map((days) => {
    const hours = days * HOURS_A_DAY;
    const inside = points.filter((point) => { const age = now - (millis(point.at) ?? now); return age >= 0 && age < hours * Number(HOUR); });
    return inside.reduce((all, point) => all + micros(point.amount), 0n) / BigInt(hours);
  });
  if (rates.every((rate) => rate === 0n)) return undefined;
  return { low: rates.reduce((a, b) => (b < a ? b : a)), high: rates.reduce((a, b) => (b > a ? b : a)) };
}

/** What is left of all grants at each instant. */
export const leftOver = (down: BurnDown): Micros[] => down.at.map((_, i) => down.grants.reduce((all, grant) => all + (grant.left[i] ?? 0n), 0n));
