import type { QueryClient } from "@tanstack/react-query";
import { feedHeaders, signedOut } from "../api/client";
import type { FeedEvent } from "../api/types";
import { refreshJobLists } from "../api/joblist";
import { setPaused } from "./pause";
import { EventParser } from "./sse";
import { initialFeed, reduceFeed, type FeedAction, type FeedState, type Topic } from "./topics";

/** Changes are shown this often at most; changes of meters less often. */
const REFRESH_INTERVAL = 2_000;
const METER_INTERVAL = 10_000;
/** The server sends a comment at least this often. */
const SILENCE_TIMEOUT = 45_000;
/** A page that is hidden this long closes its stream: over HTTP/1.1 a browser has six connections to a server. */
const HIDDEN_TIMEOUT = 5_000;
const RECONNECT_DELAYS = [500, 1_000, 2_000, 5_000, 10_000];

/** Reads `/v1/events` and refreshes the queries whose data changed. */
export class LiveFeed {
  private state = initialFeed;
  private listeners = new Set<() => void>();
  private stop = new AbortController();
  private refreshedAt = new Map<Topic, number>();
  private timer: ReturnType<typeof setInterval> | undefined;
  /** Ends the stream while the page is hidden. */
  private hidden = new AbortController();
  private hiding: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly queries: QueryClient) {}

  snapshot = (): FeedState => this.state;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  start() {
    this.stop = new AbortController();
    this.timer = setInterval(() => this.flush(), 500);
    document.addEventListener("visibilitychange", this.changeVisibility);
    this.changeVisibility();
    void this.run();
  }

  end() {
    setPaused(false);
    this.stop.abort();
    clearInterval(this.timer);
    clearTimeout(this.hiding);
    document.removeEventListener("visibilitychange", this.changeVisibility);
  }

  private changeVisibility = () => {
    clearTimeout(this.hiding);
    if (document.hidden) this.hiding = setTimeout(() => this.hidden.abort(), HIDDEN_TIMEOUT);
    else this.flush();
  };

  /** Returns once the page is visible, with a stream that ends when it is hidden again. */
  private async untilVisible() {
    while (this.hidden.signal.aborted && !this.stop.signal.aborted) {
      if (!document.hidden) this.hidden = new AbortController();
      else await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
    }
  }

  pause = () => {
    this.setPaused(true);
    this.dispatch({ type: "pause" });
  };

  /** Timers of queries ask whether the page is paused when they are set: they are set anew. */
  private setPaused(isPaused: boolean) {
    setPaused(isPaused);
    for (const query of this.queries.getQueryCache().findAll({ type: "active" })) {
      for (const observer of query.observers) observer.setOptions(observer.options);
    }
  }

  resume = () => {
    this.setPaused(false);
    this.dispatch({ type: "resume" });
    this.refreshedAt.clear();
    this.flush();
    // What a timer reads was not read meanwhile.
    void this.queries.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "session" && query.queryKey[0] !== "joblist" });
  };

  private dispatch(action: FeedAction) {
    this.state = reduceFeed(this.state, action);
    for (const listener of this.listeners) listener();
  }

  private async run() {
    let failures = 0;
    while (!this.stop.signal.aborted) {
      const lost = await this.readStream().then(() => false, () => true);
      if (this.hidden.signal.aborted) {
        // The next stream begins after the last event that this one had.
        await this.untilVisible();
        continue;
      }
      if (this.stop.signal.aborted) return;
      failures = lost && this.state.status !== "live" ? failures + 1 : 0;
      this.dispatch({ type: "lost" });
      const delay = RECONNECT_DELAYS[Math.min(failures, RECONNECT_DELAYS.length - 1)] ?? 10_000;
      await new Promise((resolve) => setTimeout(resolve, delay * (0.5 + Math.random())));
    }
  }

  private async readStream() {
    const silence = new AbortController();
    const signal = AbortSignal.any([this.stop.signal, this.hidden.signal, silence.signal]);
    let watch = setTimeout(() => silence.abort(), SILENCE_TIMEOUT);
    try {
      const response = await fetch("/v1/events", { headers: feedHeaders(this.state.lastEventId), signal, credentials: "same-origin" });
      if (response.status === 401) signedOut();
      if (!response.ok || !response.body) throw new Error(`the feed answered ${response.status}`);
      this.dispatch({ type: "heard", at: Date.now() });
      const parser = new EventParser();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(watch);
        watch = setTimeout(() => silence.abort(), SILENCE_TIMEOUT);
        const events = parser.push(value);
        if (events.length === 0) this.dispatch({ type: "heard", at: Date.now() });
        for (const event of events) this.take(event.event, event.data);
      }
    } finally {
      clearTimeout(watch);
    }
  }

  private take(kind: string, data: string) {
    if (kind === "problem") throw new Error("the server ended the feed");
    this.dispatch({ type: "event", event: JSON.parse(data) as FeedEvent, at: Date.now() });
  }

  /** Refreshes what changed, unless paused, hidden or too soon. */
  private flush = () => {
    const { paused, soon, later, jobs } = this.state;
    if (paused || document.hidden || soon.size + later.size === 0) return;
    const now = Date.now();
    const due = (topic: Topic, interval: number) => now - (this.refreshedAt.get(topic) ?? 0) >= interval;
    const topics = [
      ...[...soon].filter((topic) => due(topic, REFRESH_INTERVAL)),
      ...[...later].filter((topic) => !soon.has(topic) && due(topic, METER_INTERVAL)),
    ];
    if (topics.length === 0) return;
    for (const topic of topics) this.refreshedAt.set(topic, now);
    this.dispatch({ type: "flushed", topics, at: now });
    void this.queries.invalidateQueries({ predicate: (query) => topics.includes(query.queryKey[0] as Topic) });
    if (topics.includes("jobs")) void refreshJobLists(this.queries, jobs);
  };
}
