import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useLocation } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { read, whenSignedOut } from "../api/client";
import { currentSession, endSession, type Session } from "../api/session";
import { LiveFeed } from "../live/feed";
import { SurroundingsContext, useFeedState } from "./context";
import { Help, useGlobalKeys } from "./keyboard";
import { ProblemNote } from "./messages";
import { Mark } from "./mark";
import { menuFor } from "./menu";
import { returnTo, SignIn } from "./signin";
import { TopBar } from "./topbar";
import type { PageSearch } from "./search";

/** Everything around a page: sign-in, menu, live updates. */
export function Shell() {
  const queries = useQueryClient();
  const session = useQuery({ queryKey: ["session"], queryFn: currentSession, staleTime: Infinity, refetchOnWindowFocus: false });
  useEffect(() => whenSignedOut(() => endSession(queries)), [queries]);
  const next = session.data ? returnTo() : undefined;
  useEffect(() => { if (next) location.replace(next); }, [next]);
  if (session.data && !next) return <SignedIn session={session.data} />;
  if (session.data === null) return <SignIn onSession={(made) => queries.setQueryData(["session"], made)} />;
  if (session.error) return <div className="sign-in"><ProblemNote error={session.error} retry={() => void session.refetch()} /></div>;
  return <div className="sign-in" aria-busy="true"><span className="sr">Loading</span></div>;
}

function SignedIn({ session }: { session: Session }) {
  const queries = useQueryClient();
  const feed = useMemo(() => new LiveFeed(queries), [queries]);
  useEffect(() => {
    feed.start();
    return () => feed.end();
  }, [feed]);
  const surroundings = useMemo(() => ({ session, feed }), [session, feed]);
  // Pages begin with the server's time, which this answer carries.
  const clock = useQuery({ queryKey: ["clock"], queryFn: ({ signal }) => read("/v1/prices", { limit: 1 }, signal), staleTime: Infinity, refetchOnWindowFocus: false });
  const [help, setHelp] = useState(false);
  const search = useRef<HTMLInputElement>(null);
  useGlobalKeys(session, search, () => setHelp(true));
  return (
    <SurroundingsContext value={surroundings}>
      <div className="shell">
        <Link className="brand" to="/"><Mark />Bursar</Link>
        <TopBar searchRef={search} onHelp={() => setHelp(true)} />
        <Menu session={session} />
        <Content>{clock.isPending ? <div className="page" aria-busy="true"><span className="sr">Loading</span></div> : <Outlet />}</Content>
      </div>
      {help ? <Help session={session} close={() => setHelp(false)} /> : null}
    </SurroundingsContext>
  );
}

/** The page. While the server cannot be reached its last data is greyed. */
function Content({ children }: { children: ReactNode }) {
  const { status } = useFeedState();
  const isOffline = status === "offline";
  return (
    <main className="content" id="main">
      {isOffline ? <p className="offline-bar" role="status">The server cannot be reached. This is the last that was read; the page tries again by itself.</p> : null}
      <div className={isOffline ? "stage stale" : "stage"}>{children}</div>
    </main>
  );
}

/** Links keep the account and the region. */
const keep = (old: PageSearch): PageSearch => ({
  ...(old.account ? { account: old.account } : {}), ...(old.region ? { region: old.region } : {}),
});

function Menu({ session }: { session: Session }) {
  const { pathname } = useLocation();
  const isCurrent = (to: string) => (to === "/" ? pathname === "/" : pathname === to || pathname.startsWith(`${to}/`));
  return (
    <nav className="side" aria-label="Pages">
      {menuFor(session).map(([title, entries]) => (
        <div key={title}>
          {title ? <h2>{title}</h2> : null}
          {entries.map((entry) => (
            <Link key={entry.to} to={entry.to} search={keep as never} aria-current={isCurrent(entry.to) ? "page" : undefined}>
              {entry.name}{entry.key ? <kbd aria-hidden="true">g {entry.key}</kbd> : null}
            </Link>
          ))}
        </div>
      ))}
    </nav>
  );
}
