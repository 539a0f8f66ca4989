import { useNavigate, useSearch } from "@tanstack/react-router";
import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect } from "react";
import { api } from "../api/queries";
import { useSession } from "./context";

/** Everything that a page shows is in its address. All values are plain text. */
export interface PageSearch {
  account?: string;
  region?: string;
  /** What the side panel shows. */
  open?: string;
  state?: string;
  label?: string;
  q?: string;
  from?: string;
  to?: string;
  interval?: string;
  by?: string;
  tab?: string;
  /** `table` for the table twin of a chart. */
  view?: string;
  as?: string;
  after?: string;
  /** One record of the audit trail. */
  position?: string;
  actor?: string;
  /** Whose trail: `directory`, `cell-eu`; absent for the ledger. */
  machine?: string;
  /** Commands, separated by commas, or `all`. */
  command?: string;
  /** The order of a table: its name and column, `-` before the column for the largest first. */
  sort?: string;
  job?: string;
  next?: string;
}

const NAMES: (keyof PageSearch)[] = [
  "account", "region", "open", "state", "label", "q", "from", "to", "interval", "by", "tab", "view", "as", "after", "machine", "position", "actor", "command", "sort", "job", "next",
];

export function parseSearch(text: string): PageSearch {
  const given = new URLSearchParams(text);
  const found: PageSearch = {};
  for (const name of NAMES) {
    const value = given.get(name);
    if (value) found[name] = value;
  }
  return found;
}

export function stringifySearch(search: Record<string, unknown>): string {
  const all = new URLSearchParams();
  for (const name of NAMES) {
    const value = search[name];
    if (typeof value === "string" && value !== "") all.set(name, value);
  }
  const text = all.toString().replaceAll("%3A", ":");
  return text ? `?${text}` : "";
}

export function usePageSearch(): [PageSearch, (change: PageSearch | { [K in keyof PageSearch]: PageSearch[K] | undefined }, replace?: boolean) => void] {
  const search = useSearch({ strict: false }) as PageSearch;
  const navigate = useNavigate();
  const change = useCallback(
    (next: { [K in keyof PageSearch]?: PageSearch[K] | undefined }, replace = false) =>
      void navigate({ to: ".", search: ((old: PageSearch) => ({ ...old, ...next })) as never, replace }),
    [navigate],
  );
  return [search, change];
}

/** A filter of the page looks at more pages of the list until it has found this many rows. */
export const MIN_FOUND = 30;
/** It looks at no more pages than this by itself. */
const MAX_PAGES = 50;

/** Reads the next page of a list while a filter of the page has found few rows. */
export function useMoreWhileFew(isFew: boolean, pages: number, more: () => void) {
  useEffect(() => {
    if (isFew && pages > 0 && pages < MAX_PAGES) more();
  }, [isFew, pages, more]);
}

/** The account that the page is about: the address says so, or the scope, or the first org. */
export function useAccount(): string {
  const session = useSession();
  const [search] = usePageSearch();
  const accounts = useQuery({ ...api.accounts(), enabled: session.scope === "*" });
  if (search.account) return search.account;
  if (session.scope !== "*") return session.scope;
  const orgs = (accounts.data ?? []).filter((account) => !account.parent).map((account) => account.id);
  return orgs.sort()[0] ?? "";
}

/** Why a page about one account has nothing to show: the list of accounts failed, or is empty. */
export function useNoAccount(): { error: Error | null; isEmpty: boolean; retry: () => void } {
  const session = useSession();
  const [search] = usePageSearch();
  const isWanted = session.scope === "*" && !search.account;
  const accounts = useQuery({ ...api.accounts(), enabled: isWanted });
  return {
    error: isWanted && !accounts.data ? accounts.error : null,
    isEmpty: isWanted && accounts.data?.length === 0,
    retry: () => void accounts.refetch(),
  };
}

/** The account that lists are narrowed to, if the address names one. */
export function useAccountFilter(): string | undefined {
  const [search] = usePageSearch();
  return search.account;
}

export function useRegion(): string {
  const [search] = usePageSearch();
  const regions = useQuery(api.regions());
  return search.region ?? regions.data?.map((region) => region.id).sort()[0] ?? "";
}
