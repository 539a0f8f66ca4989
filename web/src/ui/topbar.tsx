import { useQuery, useQueryClient, type QueryClient } from "@tanstack/react-query";
import { useLocation, useNavigate } from "@tanstack/react-router";
import { useEffect, useRef, useState, type FormEvent, type ReactNode, type RefObject } from "react";
import { api } from "../api/queries";
import { endSession, signOut } from "../api/session";
import { formatDuration, visible, words } from "../format";
import { useFeed, useFeedState, useSession } from "./context";
import { ProblemNote } from "./messages";
import { setPreferences, usePreferences, useTheme } from "./preferences";
import { useAccount, usePageSearch } from "./search";

export function TopBar({ searchRef, onHelp }: { searchRef: RefObject<HTMLInputElement | null>; onHelp: () => void }) {
  return (
    <header className="top">
      <AccountPicker />
      <SearchBox inputRef={searchRef} />
      <span className="grow" />
      <LiveState />
      <button type="button" className="button quiet hide-phone" onClick={onHelp} aria-label="Keyboard help" title="Keyboard help">?</button>
      <UserMenu />
    </header>
  );
}

/** A button with a list below it. A click elsewhere or Esc closes it. */
function Menu({ label, button, left = false, children }: { label: string; button: ReactNode; left?: boolean; children: (close: () => void) => ReactNode }) {
  const [open, setOpen] = useState(false);
  const frame = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const outside = (event: MouseEvent) => { if (!frame.current?.contains(event.target as Node)) setOpen(false); };
    const escape = (event: KeyboardEvent) => { if (event.key === "Escape") setOpen(false); };
    document.addEventListener("mousedown", outside);
    document.addEventListener("keydown", escape);
    return () => {
      document.removeEventListener("mousedown", outside);
      document.removeEventListener("keydown", escape);
    };
  }, [open]);
  return (
    <div className="menu" ref={frame}>
      <button type="button" className="button" aria-haspopup="true" aria-expanded={open} onClick={() => setOpen(!open)}><span className="sr">{label}: </span>{button}<span aria-hidden="true">▾</span></button>
      {open ? <div className={left ? "list left" : "list"}>{children(() => setOpen(false))}</div> : null}
    </div>
  );
}

/** Pages about one account; others may show every account. */
const ONE_ACCOUNT = new Set(["/", "/credits", "/spend", "/budgets"]);
/** More accounts than this are found by typing. */
const MAX_SHOWN_ACCOUNTS = 100;

function AccountPicker() {
  const session = useSession();
  const chosen = useAccount();
  const [search, change] = usePageSearch();
  const { pathname } = useLocation();
  const account = search.account || ONE_ACCOUNT.has(pathname) || session.scope !== "*" ? chosen : "";
  const accounts = useQuery(api.accounts());
  const [filter, setFilter] = useState("");
  const sorted = [...(accounts.data ?? [])].sort((a, b) => (a.id < b.id ? -1 : 1));
  const matching = sorted.filter((one) => `${one.id} ${one.name ?? ""}`.toLowerCase().includes(filter.toLowerCase()));
  return (
    <Menu label="Account" left button={<span className="nowrap">{visible(account) || "Every account"}</span>}>
      {(close) => (
        <>
          <input type="search" placeholder="Filter accounts" aria-label="Filter accounts" value={filter} onChange={(event) => setFilter(event.target.value)} autoFocus />
          {ONE_ACCOUNT.has(pathname) ? null : <button type="button" aria-current={!search.account} onClick={() => { change({ account: undefined, open: undefined }); close(); }}>Every account in your scope</button>}
          {matching.slice(0, MAX_SHOWN_ACCOUNTS).map((one) => (
            <button key={one.id} type="button" aria-current={one.id === account} style={{ paddingLeft: 8 + 14 * (one.id.split(":").length - 1) }} onClick={() => { change({ account: one.id, open: undefined }); close(); }}>
              <span>{visible(one.id.split(":").at(-1))}</span><span className="faint">{visible(one.name) || one.kind}</span>
            </button>
          ))}
          {matching.length > MAX_SHOWN_ACCOUNTS ? <p className="faint small">{matching.length - MAX_SHOWN_ACCOUNTS} more: type to narrow.</p> : null}
          {matching.length === 0 ? <p className="faint small">No account matches.</p> : null}
        </>
      )}
    </Menu>
  );
}

function SearchBox({ inputRef }: { inputRef: RefObject<HTMLInputElement | null> }) {
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim()) void navigate({ to: "/support", search: { q: text.trim() } as never });
    inputRef.current?.blur();
  };
  return (
    <form role="search" onSubmit={submit} className="hide-phone">
      <input ref={inputRef} type="search" aria-label="Search by id or name" placeholder="Search job, hold, grant, request, key  /" value={text} style={{ width: "clamp(120px, 23.5vw, 300px)" }} onChange={(event) => setText(event.target.value)} onKeyDown={(event) => { if (event.key === "Escape") event.currentTarget.blur(); }} />
    </form>
  );
}

/** When the newest of what the page shows was read. */
function lastRead(queries: QueryClient): number | undefined {
  const shown = queries.getQueryCache().findAll({ type: "active", predicate: ({ queryKey, state }) => state.dataUpdatedAt > 0 && queryKey[0] !== "session" && queryKey[0] !== "clock" });
  return shown.length ? Math.max(...shown.map(({ state }) => state.dataUpdatedAt)) : undefined;
}

/** Whether the page follows the server, and how old it is. */
function LiveState() {
  const feed = useFeed();
  const state = useFeedState();
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  const queries = useQueryClient();
  const heard = lastRead(queries) ?? state.heardAt;
  const age = heard === undefined ? "" : `updated ${formatDuration(Math.max(0, Math.floor((now - heard) / 1000) * 1000))} ago`;
  const tone = state.paused ? "orange" : state.status === "live" ? "green" : "red";
  const word = state.paused ? "Paused" : state.status === "live" ? "Live" : state.status === "offline" ? "Offline" : "Connecting";
  return (
    <span className="live">
      <i className={`dot tone-${tone}`} aria-hidden="true" />
      <span role="status">{word}</span>
      <span className="hide-phone">{age}{state.paused && state.waiting ? `, ${state.waiting} changes waiting` : ""}</span>
      <button type="button" className="button small" onClick={state.paused ? feed.resume : feed.pause}>{state.paused ? "Resume" : "Pause"}</button>
    </span>
  );
}

function UserMenu() {
  const session = useSession();
  const { zone } = usePreferences();
  const theme = useTheme();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [failed, setFailed] = useState<Error | null>(null);
  const leave = async () => {
    try {
      await signOut();
    } catch (error) {
      // The session may still be open: the page must not look signed out.
      setFailed(error as Error);
      return;
    }
    endSession(queries);
    if (session.logout_url && /^https?:/.test(session.logout_url)) location.assign(session.logout_url);
  };
  return (
    <Menu label="Session" button={<span className="nowrap">{words(session.role)}<span className="faint hide-phone"> · {visible(session.scope)}</span></span>}>
      {(close) => (
        <>
          <p className="small muted">Role {words(session.role)}, scope {visible(session.scope)}</p>
          <button type="button" onClick={() => setPreferences({ theme: theme === "dark" ? "light" : "dark" })}>{theme === "dark" ? "Light colours" : "Dark colours"}</button>
          <button type="button" onClick={() => setPreferences({ zone: zone === "utc" ? "local" : "utc" })}>{zone === "utc" ? "Times in the local zone" : "Times in UTC"}</button>
          <button type="button" onClick={() => { close(); void navigate({ to: "/settings" }); }}>Settings</button>
          <button type="button" onClick={() => void leave()}>Sign out</button>
          {failed ? <div className="small"><p>You are still signed in.</p><ProblemNote error={failed} /></div> : null}
        </>
      )}
    </Menu>
  );
}
