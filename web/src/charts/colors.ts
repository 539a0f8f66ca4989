import type { Tone } from "../ui/basics";

type Rgb = [number, number, number];

export function parseHex(text: string): Rgb {
  const short = text.trim().replace("#", "");
  // Builds shorten #ffffff to #fff.
  const hex = short.length === 3 ? [...short].map((digit) => digit + digit).join("") : short;
  const part = (at: number) => Number.parseInt(hex.slice(at, at + 2), 16) || 0;
  return [part(0), part(2), part(4)];
}

/** Between two colours: 0 is the first, 1 the second. */
export function mix(a: Rgb, b: Rgb, at: number): string {
  const hex = (i: 0 | 1 | 2) => Math.round(a[i] + (b[i] - a[i]) * at).toString(16).padStart(2, "0");
  return `#${hex(0)}${hex(1)}${hex(2)}`;
}

export const token = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Shades of one hue, strongest first: parts of one meaning, such as spend by account. */
export function shade(tone: Tone, index: number, all: number): string {
  // Two shades are close to each other, many reach further.
  const weakest = Math.min(0.78, 0.25 + 0.14 * all);
  return mix(parseHex(token(tone)), parseHex(token("bg")), all < 2 ? 0 : (index / (all - 1)) * weakest);
}
