import { describe, expect, it } from "vitest";
import { isAway, isRefusal, learnTime, OfflineError, ProblemError, serverNow } from "./client";
import type { Problem } from "./types";

const problem = (retryable: boolean, code = "conflict") => new ProblemError({ type: "about:blank", title: "t", status: 409, detail: "", code, retryable, request_id: "" } as Problem);

describe("a change that failed", () => {
  it("gets a new key only where it was certainly refused", () => {
    expect(isRefusal(problem(false))).toBe(true);
    expect(isRefusal(problem(true, "outcome_unknown"))).toBe(false);
    expect(isRefusal(new OfflineError("no answer"))).toBe(false);
    expect(isRefusal(new TypeError("not JSON"))).toBe(false);
  });
});

describe("the clock of the page", () => {
  it("begins with the server's time, also an earlier one, and never goes back", () => {
    const first = Date.now() - 86_400_000;
    learnTime(first);
    const now = serverNow();
    expect(now - first).toBeLessThan(1_000);
    learnTime(first - 60_000);
    expect(serverNow()).toBeGreaterThanOrEqual(now);
    learnTime(first + 60_000);
    expect(serverNow() - first).toBeGreaterThanOrEqual(60_000);
  });
});

describe("a person", () => {
  it("is away half a minute after the last thing done", () => {
    expect(isAway(Date.now())).toBe(false);
    expect(isAway(Date.now() + 60_000)).toBe(true);
  });
});
