import { describe, expect, it } from "vitest";
import {
  amountParts, costOf, csv, formatAmount, formatDuration, formatInstant, formatRelative, formatShare, micros, monthStart,
  parseAmount, parseDuration, perMille, plainAmount, shortAmount, visible, words,
} from ".";

describe("amounts", () => {
  it("keeps every micro-credit of the largest amount", () => {
    const largest = "9223372036854.775807";
    expect(micros(largest)).toBe(9223372036854775807n);
    expect(plainAmount(micros(largest))).toBe(largest);
    expect(formatAmount(largest)).toBe("9,223,372,036,854.775807");
  });

  it("shows the shortest form with thousands separators", () => {
    expect(formatAmount("0")).toBe("0");
    expect(formatAmount("1000")).toBe("1,000");
    expect(formatAmount("28.800000")).toBe("28.8");
    expect(formatAmount("0.000001")).toBe("0.000001");
    expect(formatAmount("-1234.5")).toBe("\u22121,234.5");
    expect(formatAmount(28)).toBe("28");
  });

  it("refuses what is not an amount", () => {
    for (const text of ["1.2345678", "1e3", "", "NaN", "1,000", " 1", "+1"]) expect(() => micros(text)).toThrow(RangeError);
  });

  it("reads what people type and nothing else", () => {
    expect(parseAmount(" 1,234.5 ")).toBe(1_234_500_000n);
    for (const text of ["", "-1", "01", "1.", ".5", "1e3", "abc", "1.2345678"]) expect(parseAmount(text)).toBeUndefined();
  });

  it("adds without rounding where floating point would round", () => {
    expect(plainAmount(micros("0.1") + micros("0.2"))).toBe("0.3");
    expect(amountParts(-1n)).toEqual({ sign: "-", whole: "0", fraction: "000001" });
  });

  it("marks amounts that were cut for an axis", () => {
    expect(shortAmount(micros("1.5"))).toBe("1.5");
    expect(shortAmount(micros("1.234567"))).toBe("≈ 1.23");
  });

  it("compares parts of a whole, also of nothing", () => {
    expect(perMille(1n, 3n)).toBe(333);
    expect(perMille(5n, 0n)).toBe(0);
    expect(formatShare(micros("37.5"), micros("100"))).toBe("37.5 %");
    expect(formatShare(0n, 0n)).toBe("0 %");
    expect([formatShare(87_432n, 100_000n), formatShare(12_568n, 100_000n)]).toEqual(["87.4 %", "12.6 %"]);
    expect([formatShare(99_999n, 100_000n), formatShare(100_000n, 100_000n), formatShare(150n, 100n)]).toEqual(["99.9 %", "100 %", "150 %"]);
  });

  it("costs what the meter charges", () => {
    expect(costOf(micros("96"), 92_000)).toBe(micros("2.453333"));
    expect(costOf(micros("96"), -1)).toBe(0n);
  });
});

describe("times", () => {
  it("has at most two units", () => {
    expect(formatDuration(0)).toBe("0 s");
    expect(formatDuration(59_999)).toBe("59\u00a0s");
    expect(formatDuration(3_600_000 * 28)).toBe("1\u00a0d 4\u00a0h");
    expect(formatDuration(-60_000)).toBe("\u22121\u00a0min");
  });

  it("is relative with the exact instant in UTC", () => {
    const at = Date.UTC(2026, 10, 18, 2, 3, 4, 5);
    expect(formatInstant(at, "utc")).toBe("2026-11-18 02:03:04.005 UTC");
    expect(formatRelative(at, at + 90_000)).toBe("1\u00a0min 30\u00a0s ago");
    expect(formatRelative(at, at - 5_000)).toBe("in 5\u00a0s");
    expect(formatRelative(at, at)).toBe("now");
  });

  it("finds the first instant of months across years", () => {
    expect(new Date(monthStart(Date.UTC(2026, 0, 31, 23), -1)).toISOString()).toBe("2025-12-01T00:00:00.000Z");
    expect(new Date(monthStart(Date.UTC(2026, 11, 31, 23), 1)).toISOString()).toBe("2027-01-01T00:00:00.000Z");
  });

  it("reads durations with their unit only", () => {
    expect(parseDuration("90s")).toBe(90);
    expect(parseDuration("1h30m")).toBe(5400);
    expect(parseDuration("01:00:00")).toBe(3600);
    expect(parseDuration("2d")).toBe(172_800);
    for (const text of ["4", "", "0s", "1w", "h", "1h 2", "-1h"]) expect(parseDuration(text)).toBeUndefined();
  });
});

describe("text of others", () => {
  it("shows characters that hide or reorder text", () => {
    expect(visible("a\u202eb\u0007c")).toBe("a\\u202eb\\u0007c");
    expect(visible(null)).toBe("");
    expect(words("out_of_credits")).toBe("out of credits");
  });

  it("is quoted in files, and never a formula", () => {
    expect(csv([["a,b", 'say "x"', "=1+1", "-5", "@cmd"]])).toBe(`"a,b","say ""x""",'=1+1,-5,'@cmd\r\n`);
  });
});
