import { createContext, useContext, useEffect, useState, useSyncExternalStore } from "react";
import { serverNow } from "../api/client";
import type { Session } from "../api/session";
import type { LiveFeed } from "../live/feed";

interface Surroundings {
  session: Session;
  feed: LiveFeed;
}

export const SurroundingsContext = createContext<Surroundings | null>(null);

function useSurroundings(): Surroundings {
  const found = useContext(SurroundingsContext);
  if (!found) throw new Error("pages are shown inside the shell, which provides the session");
  return found;
}

export const useSession = () => useSurroundings().session;
export const useFeed = () => useSurroundings().feed;

export function useFeedState() {
  const feed = useFeed();
  return useSyncExternalStore(feed.subscribe, feed.snapshot);
}

const TICK = 1_000;

/** The server's time, refreshed every second. */
export function useNow(interval = TICK): number {
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    const timer = setInterval(() => setNow(serverNow()), interval);
    return () => clearInterval(timer);
  }, [interval]);
  return now;
}
