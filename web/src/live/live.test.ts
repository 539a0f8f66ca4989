import { describe, expect, it } from "vitest";
import type { FeedEvent, Job, Page } from "../api/types";
import { mergeJobs, type JobPages } from "../api/joblist";
import { EventParser } from "./sse";
import { initialFeed, MAX_CHANGED_JOBS, reduceFeed, topicsOf, type FeedState } from "./topics";

const event = (type: string, data: unknown = {}, id = "evt_1"): FeedEvent => ({ id, type, at: "2026-01-01T00:00:00.000Z", position: 1, data }) as FeedEvent;
const after = (state: FeedState, ...types: [string, unknown?][]) => types.reduce((now, [type, data], i) => reduceFeed(now, { type: "event", event: event(type, data, `evt_${i}`), at: i }), state);

describe("server-sent events", () => {
  it("come whole however the stream is cut", () => {
    const text = 'id: evt_1\nevent: hold_placed\ndata: {"a":\ndata: 1}\n\n: ping\n\nid: evt_2\ndata: x\r\n\r\n';
    for (let size = 1; size < text.length; size++) {
      const parser = new EventParser();
      const events = [];
      for (let at = 0; at < text.length; at += size) events.push(...parser.push(text.slice(at, at + size)));
      expect(events).toEqual([{ id: "evt_1", event: "hold_placed", data: '{"a":\n1}' }, { id: "evt_2", event: "message", data: "x" }]);
    }
  });
});

describe("the feed", () => {
  it("collects what changed and forgets what was refreshed", () => {
    const state = after(initialFeed, ["job_submitted", { job: "job_1" }], ["hold_captured"]);
    expect(state).toMatchObject({ status: "live", waiting: 2, lastEventId: "evt_1" });
    expect([...state.soon]).toEqual(["jobs", "queue", "regions", "nodes"]);
    expect([...state.later]).toEqual(["spend", "balance", "budgets"]);
    expect([...state.jobs]).toEqual(["job_1"]);
    const half = reduceFeed(state, { type: "flushed", topics: ["jobs", "queue", "regions", "nodes"], at: 9 });
    expect(half).toMatchObject({ waiting: 2, updatedAt: 9 });
    expect(half.jobs.size).toBe(0);
    expect(reduceFeed(half, { type: "flushed", topics: ["spend", "balance", "budgets"], at: 10 }).waiting).toBe(0);
  });

  it("keeps counting while it is paused and resumes after the last event", () => {
    const paused = after(reduceFeed(initialFeed, { type: "pause" }), ["grant_issued"], ["charged"]);
    expect(paused).toMatchObject({ paused: true, waiting: 2 });
    const lost = reduceFeed(paused, { type: "lost" });
    expect(lost).toMatchObject({ status: "offline", lastEventId: "evt_1", waiting: 2 });
    expect(reduceFeed(lost, { type: "resume" }).paused).toBe(false);
  });

  it("ignores events that change no page", () => {
    expect(topicsOf("policy_set")).toEqual([]);
    expect(after(initialFeed, ["unheard_of"]).waiting).toBe(0);
  });

  it("bounds the jobs that it remembers", () => {
    const many = Array.from({ length: MAX_CHANGED_JOBS + 50 }, (_, i): [string, unknown] => ["job_ended", { job: `job_${i}` }]);
    expect(after(initialFeed, ...many).jobs.size).toBe(MAX_CHANGED_JOBS);
  });
});

describe("lists of jobs", () => {
  const job = (id: string, state = "running", account = "acme") => ({ id, state, account }) as Job;
  const page = (...data: Job[]): Page<Job> => ({ data, has_more: true, next_cursor: "c" });
  const pages = (...all: Page<Job>[]): JobPages => ({ pages: all, pageParams: all.map(() => null) });
  const ids = (list: JobPages) => list.pages.map(({ data }) => data.map(({ id }) => id));

  it("gain new jobs at the top and keep the others in place", () => {
    const merged = mergeJobs(pages(page(job("b"), job("a")), page(job("z"))), page(job("c"), job("b", "failed")), [job("z", "stopping")], {});
    expect(ids(merged)).toEqual([["c", "b", "a"], ["z"]]);
    expect(merged.pages[0]?.data[1]?.state).toBe("failed");
    expect(merged.pages[1]?.data[0]?.state).toBe("stopping");
  });

  it("lose jobs that no longer match", () => {
    const merged = mergeJobs(pages(page(job("a")), page(job("b"))), page(), [job("b", "failed")], { state: "running", account: "acme" });
    expect(ids(merged)).toEqual([["a"], []]);
  });
});
