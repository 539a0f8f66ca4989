import { useNavigate, useSearch } from "@tanstack/react-router";
import { useQuery } from "@tanstack/react-query";
import { useCallback } from "react";
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
  job?: string;
  next?: string;
}

const NAMES: (keyof PageSearch)[] = [
  "account", "region", "open", "state", "label", "q", "from", "to", "interval", "by", "tab", "view", "as", "after", "job", "next",
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
