import { useSyncExternalStore } from "react";
import { PERSONS, type Person } from "../api/session";
import type { Zone } from "../format";

/** Settings of this browser. They hold nothing secret. */
export interface Preferences {
  theme: "system" | "light" | "dark";
  zone: Zone;
  /** The first page; by role if absent. */
  person: Person | "role";
  /** Whether single keys do something. */
  shortcuts: "on" | "off";
}

const STORAGE_KEY = "bursar.preferences";
const DEFAULTS: Preferences = { theme: "system", zone: "local", person: "role", shortcuts: "on" };

export function parsePreferences(text: string | null): Preferences {
  let stored: Partial<Record<keyof Preferences, unknown>> = {};
  try {
    const value: unknown = JSON.parse(text ?? "{}");
    if (typeof value === "object" && value !== null) stored = value;
  } catch {
    return DEFAULTS;
  }
  const oneOf = <T extends string>(value: unknown, choices: readonly T[], fallback: T): T =>
    choices.includes(value as T) ? (value as T) : fallback;
  return {
    theme: oneOf(stored.theme, ["system", "light", "dark"] as const, DEFAULTS.theme),
    zone: oneOf(stored.zone, ["local", "utc"] as const, DEFAULTS.zone),
    person: oneOf(stored.person, ["role", ...PERSONS] as const, DEFAULTS.person),
    shortcuts: oneOf(stored.shortcuts, ["on", "off"] as const, DEFAULTS.shortcuts),
  };
}

let current = parsePreferences(readStored());
const listeners = new Set<() => void>();

function readStored(): string | null {
  try {
    return globalThis.localStorage?.getItem(STORAGE_KEY) ?? null;
  } catch {
    return null;
  }
}

export function setPreferences(change: Partial<Preferences>) {
  current = { ...current, ...change };
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(current));
  } catch {
    // Without storage the setting lasts until the page is closed.
  }
  applyTheme();
  listeners.forEach((listener) => listener());
}

const darkMode = () => globalThis.matchMedia?.("(prefers-color-scheme: dark)");

export function applyTheme() {
  const dark = current.theme === "dark" || (current.theme === "system" && darkMode()?.matches);
  document.documentElement.dataset["theme"] = dark ? "dark" : "light";
}

/** Sets the theme before the first paint and follows the system's. */
export function watchTheme() {
  applyTheme();
  darkMode()?.addEventListener("change", () => {
    applyTheme();
    listeners.forEach((listener) => listener());
  });
}

export const hasShortcuts = (): boolean => current.shortcuts === "on";

export function usePreferences(): Preferences {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}

/** Changes when the theme does, so that canvases are drawn again. */
export function useTheme(): string {
  usePreferences();
  return document.documentElement.dataset["theme"] ?? "light";
}
