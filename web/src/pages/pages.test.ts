import { describe, expect, it } from "vitest";
import { recordPlaces } from "../actions/action";
import { splitCommand } from "../actions/submit";
import { may, personOf, type Session } from "../api/session";
import type { RegionSeries } from "../api/reports";
import type { Budget, Grant, Job, MachineNode, ShareEntry, Statement, TimelineEntry } from "../api/types";
import { burnDown, rateBand } from "../charts/burndown";
import { mix, parseHex } from "../charts/colors";
import { stack } from "../charts/stack";
import { micros, rfc3339 } from "../format";
import { parsePreferences } from "../ui/preferences";
import { moveCursor } from "../ui/rowkeys";
import { parseSearch, stringifySearch } from "../ui/search";
import { bindingBudget } from "./budgets";
import { largestGang, mayDrain, usage } from "./clustermath";
import { ancestors, difference, grantTotals, monthRow, waterfallOf } from "./creditmath";
import { jobCommand, quote } from "./jobs/command";
import { marksOf } from "./jobs/lane";
import { gpuMicros, hasText, holdLeft, projectedCost, ratePerHour } from "./jobs/math";
import { median } from "./queue";
import { regionChart } from "./regionchart";
import { percent, points, shareError, spendingNow } from "./share";
import { spendChart, spendParts } from "./spend";
import { bySource, costLine, groupTimeline } from "./jobs/timeline";
import { keepsSessions, returnTo } from "../ui/signin";
import { parseSort, writeSort } from "../ui/table";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const grant = (id: string, available: string, expires?: number, more: Partial<Grant> = {}) =>
  ({ id, account: "acme", amount: available, available, held: "0", spent: "0", expired: "0", revoked: "0", moved: "0", expires_at: expires === undefined ? null : new Date(expires).toISOString(), effective_at: new Date(0).toISOString(), ...more }) as Grant;

describe("burn-down", () => {
  it("spends what expires first, first, and drops what expires", () => {
    const down = burnDown([grant("late", "100"), grant("soon", "48", 2 * DAY)], micros("1"), 0, 10 * DAY);
    expect(down.grants.map(({ id }) => id)).toEqual(["soon", "late"]);
    const at = (time: number, i: number) => down.grants[i]?.left[down.at.indexOf(time)];
    expect(at(2 * DAY - 1, 0)).toBeGreaterThan(0n);
    expect(at(2 * DAY, 0)).toBe(0n);
    expect(at(2 * DAY, 1)).toBe(micros("100"));
    expect(down.lost).toBeLessThan(micros("0.01"));
    expect(down.emptyAt).toBeGreaterThan(6 * DAY);
  });

  it("names what expires unused", () => {
    const down = burnDown([grant("soon", "100", DAY)], micros("1"), 0, 2 * DAY);
    expect(down.lost).toBeGreaterThan(micros("75.9"));
    expect(down.lost).toBeLessThan(micros("76.1"));
  });

  it("lasts without spending", () => {
    expect(burnDown([grant("a", "5")], 0n, 0, DAY)).toMatchObject({ emptyAt: undefined, lost: 0n });
  });
});

describe("credits", () => {
  it("are all in one place: granted is the sum of the others", () => {
    const total = grantTotals([grant("a", "3", undefined, { amount: "10", spent: "4", held: "2", expired: "1" })]);
    expect(total.amount).toBe(total.spent + total.held + total.expired + total.revoked + total.moved + total.available);
  });

  it("has a waterfall from opening to closing", () => {
    const steps = waterfallOf({ opening: "5", closing: "12", movements: [{ type: "granted", amount: "10", count: 1 }, { type: "captured", amount: "0", count: 3 }, { type: "held", amount: "-3", count: 1 }] } as Statement);
    expect(steps.map(({ name }) => name)).toEqual(["Opening", "Granted", "Held", "Closing"]);
    expect(ancestors("a:b:c")).toEqual(["a", "a:b", "a:b:c"]);
  });
});

describe("jobs", () => {
  const job = { id: "j", account: "a", state: "running", charged: "5", returned: "0", hold: { id: "h2", amount: "8", captured: "1" }, spec: { account: "a", name: "it's", gpus: { types: ["H100"], count: 2 }, nodes: 2, max_runtime_seconds: 60, command: ["bash", "-c", "echo $X"] }, attempts: [{ id: "a1", hold: "h1", charged: "4", ended_at: "2026-01-01T00:00:00.000Z", per_gpu_hour: "3" }, { id: "a2", hold: "h2", charged: "1", started_at: "2026-01-01T00:00:00.000Z", ended_at: null, per_gpu_hour: "3" }] } as unknown as Job;

  it("cost at most what was charged before and the whole hold", () => {
    expect(projectedCost(job)).toBe(micros("12"));
    expect(projectedCost({ ...job, state: "failed" })).toBe(micros("5"));
    expect(holdLeft(job)).toBe(micros("7"));
    expect(gpuMicros(job)).toBe(micros("4"));
    expect(ratePerHour(job)).toBe(micros("12"));
    expect(gpuMicros({ spec: { account: "a", gpus: { share: "0.25" } } } as Job)).toBe(micros("0.25"));
  });

  it("have the command that submits them again", () => {
    expect(jobCommand(job)).toBe(`bursar run -a a -g H100:2 -t 60s --name 'it'\\''s' --nodes 2 -- bash -c 'echo $X'`);
    expect(quote("$(rm -rf)")).toBe("'$(rm -rf)'");
    expect(splitCommand(`bash -c 'a "b"' x\\ y "q \\"z\\""`)).toEqual(["bash", "-c", 'a "b"', "x y", 'q "z"']);
  });

  it("have a command with every field of the spec", () => {
    const spec: Required<Job["spec"]> = {
      id: "mine", account: "a:b", name: "n", gpus: { types: ["H100", "A100"], count: 4, share: null, memory_gib: 80 }, nodes: 2, cpus: 16, memory_gib: 64, node_labels: { zone: "x y" },
      max_runtime_seconds: 3600, class: "urgent", external: true, preemptible: false, resumable: true, grace_seconds: 30, regions: ["eu", "us"], reserve: "rolling", on_exhausted: "overdraft",
      warn_ahead_seconds: 0, concurrency_group: { name: "tuning", limit: 2 }, array: 8, after: ["job_1", "job_2"], command: ["./run", "$X"], env: { A: "1", B: "it's" }, workdir: "/data", labels: { team: "nlp" }, max_requeues: 0,
    };
    expect(jobCommand({ spec })).toBe([
      "bursar run -a a:b -g H100,A100:4 --gpu-memory 80 -t 3600s --name n --class urgent --nodes 2 --cpus 16 --memory 64 --node-label 'zone=x y' --region eu,us",
      "--external --preemptible false --resumable --grace 30s --reserve rolling --on-exhausted overdraft --warn-ahead 0s --group tuning=2 --array 8 --after job_1 --after job_2",
      "--max-requeues 0 -e A=1 -e 'B=it'\\''s' --workdir /data -l team=nlp -- ./run '$X'",
    ].join(" "));
    expect(jobCommand({ spec: { account: "a", gpus: { share: "0.25" }, class: "normal", nodes: 1, reserve: "full", on_exhausted: "stop" } })).toBe("bursar run -a a -g 0.25");
  });

  it("are found by id, name, account or label", () => {
    const job = { id: "job_1", account: "acme:nlp", spec: { account: "acme:nlp", name: "Train", gpus: {}, labels: { team: "NLP" } } } as Pick<Job, "id" | "account" | "spec">;
    for (const text of ["job_1", "train", "acme", "team=nlp", ""]) expect(hasText(job, text), text).toBe(true);
    expect(hasText(job, "other")).toBe(false);
  });

  it("have marks of money on their lane, with close charges as one", () => {
    const at = (second: number) => new Date(second * 1000).toISOString();
    const entry = (type: string, second: number, amount?: string) => ({ type, at: at(second), source: "ledger", position: second, detail: "", amount }) as TimelineEntry;
    const marks = marksOf([entry("hold_placed", 0, "9"), entry("hold_captured", 100, "0.5"), entry("hold_captured", 101, "0.25"), entry("hold_captured", 500, "1"), entry("hold_extended", 501), entry("refunded", 900, "0.5")], 0, 1_000_000);
    expect(marks.map(({ type, amount }) => [type, amount])).toEqual([["hold_placed", micros("9")], ["hold_captured", micros("0.75")], ["hold_captured", micros("1")], ["refunded", micros("0.5")]]);
  });

  it("have one line for many reports of the meter, and a cost line", () => {
    const entry = (type: string, second: number, amount?: string) => ({ type, at: new Date(second * 1000).toISOString(), source: "ledger", position: second, detail: "", amount }) as TimelineEntry;
    const entries = [entry("job_submitted", 0), entry("hold_captured", 1, "0.5"), entry("hold_extended", 1), entry("hold_captured", 2, "0.25"), entry("refunded", 3, "0.5")];
    expect(groupTimeline(entries).map(({ entries: all }) => all.length)).toEqual([1, 3, 1]);
    expect(costLine(entries)).toEqual({ at: [0, 1000, 2000, 3000], total: [0n, 500_000n, 750_000n, 250_000n] });
  });
});

describe("cluster", () => {
  const node = (id: string, state: string, ...used: string[]) => ({ id, state, gpus: used.map((one, i) => ({ uuid: `${id}${i}`, type: "H100", used: one })) }) as MachineNode;
  it("knows the largest gang, what is allocated and what is splintered", () => {
    const nodes = [node("a", "ready", "0", "1", "0.25"), node("b", "ready", "0", "0"), node("c", "draining", "0", "0", "0")];
    const gang = (type: string, gpus: number) => ({ type, gpus, nodes: 1, gpus_per_node: gpus });
    expect(largestGang({ largest_gang: [gang("A100", 2), gang("H100", 8), gang("L40S", 0)] })?.type).toBe("H100");
    expect(usage(nodes)).toEqual({ total: 8, usable: 5, allocated: micros("1.25"), splintered: micros("0.75") });
    expect(largestGang({ largest_gang: [gang("L40S", 0)] })).toBeUndefined();
  });

  it("is drained where the scope has every account of the node", () => {
    const session = (scope: string, role = "admin") => ({ role, scope, actor: "k", may_issue: false }) as Session;
    for (const [scope, node, expected] of [["*", "*", true], ["acme", "*", false], ["acme", "acme", true], ["acme", "acme:nlp", true], ["acme", "acme2", false], ["acme:nlp", "acme", false]] as const) expect(mayDrain(session(scope), { scope: node }), `${scope} ${node}`).toBe(expected);
    expect(mayDrain(session("*", "viewer"), { scope: "*" })).toBe(false);
  });

  it("finds the largest share error among those that wait", () => {
    const share = (account: string, received: string, waiting: number) => ({ account, received, entitled: "0.5", waiting_jobs: waiting }) as ShareEntry;
    expect(shareError([share("a", "0.1", 1), share("b", "0.9", 0), share("c", "0.6", 2)])?.account).toBe("a");
    expect(percent(micros("-0.123456"))).toBe("\u221212.3 %");
    expect(median([3, 1, 2])).toBe(2);
    expect(median([])).toBeUndefined();
  });
});

describe("spend and budgets", () => {
  it("stacks exactly, with a point for each period", () => {
    const spend = { account: "a", by: "subtree", from: "", to: "", position: 1, interval: "day" as const, total: "7", points: [], as_of: "", other: "1", other_points: [{ at: "1970-01-02T00:00:00Z", amount: "1" }], series: [{ key: "a", total: "5", points: [{ at: "1970-01-01T00:00:00Z", amount: "2" }, { at: "1970-01-02T00:00:00Z", amount: "3" }] }, { key: null, total: "1", points: [] }] };
    expect(spendParts(spend).map(({ name }) => name)).toEqual(["a", "none", "all others"]);
    const { at, series } = spendChart(spend);
    expect(at).toEqual([0, DAY]);
    expect(stack(series.map(({ values }) => values)).at(-1)).toEqual([micros("2"), micros("4")]);
  });

  it("the hard budget with the least left blocks first", () => {
    const budget = (name: string, remaining: string, mode = "hard") => ({ name, remaining, mode, unit: "credits" }) as Budget;
    expect(bindingBudget([budget("a", "5"), budget("b", "3"), budget("c", "1", "soft")])?.name).toBe("b");
    expect(bindingBudget([])).toBeUndefined();
  });
});

describe("pages", () => {
  const session = (role: Session["role"], scope: string, more: Partial<Session> = {}): Session => ({ role, scope, actor: "key", may_issue: scope === "*", ...more });

  it("begin with what the role asks", () => {
    expect(personOf(session("admin", "*"))).toBe("operator");
    expect(personOf(session("admin", "acme"))).toBe("lead");
    expect(personOf(session("auditor", "acme"))).toBe("finance");
    expect(personOf(session("submitter", "acme"))).toBe("researcher");
  });

  it("offer only what the role may do", () => {
    expect(may(session("viewer", "acme"), "submit")).toBe(false);
    expect(may(session("admin", "acme"), "grant")).toBe(false);
    expect(may(session("admin", "acme", { may_issue: true }), "grant")).toBe(true);
    expect(may(session("billing", "*"), "price")).toBe(true);
    expect(may(session("billing", "acme"), "price")).toBe(false);
  });

  it("keep their state in the address as plain text", () => {
    expect(parseSearch("?account=acme:nlp&q=123&evil=1")).toEqual({ account: "acme:nlp", q: "123" });
    expect(stringifySearch({ account: "a:b", q: "x&y=<z>", open: undefined, other: "1" })).toBe("?account=a:b&q=x%26y%3D%3Cz%3E");
    expect(parseSearch(stringifySearch({ q: "x&y=<z>" }))).toEqual({ q: "x&y=<z>" });
  });

  it("have the order of a table in the address", () => {
    expect(parseSort("running-and-waiting-jobs.-cost", "Running and waiting jobs", ["cost"])).toEqual([{ id: "cost", desc: true }]);
    expect(writeSort("Jobs", [{ id: "name", desc: false }])).toBe("jobs.name");
    expect(parseSort("jobs.cost", "Grants", ["cost"])).toBeUndefined();
    expect(parseSort("jobs.evil", "Jobs", ["cost"])).toBeUndefined();
    expect(writeSort("Jobs", [])).toBeUndefined();
  });

  it("say where a sign-in does not hold", () => {
    const keeps = (text: string) => { const url = new URL(text); return keepsSessions({ protocol: url.protocol, hostname: url.hostname }); };
    for (const own of ["https://bursar.example", "http://localhost:7070", "http://127.0.0.1:1", "http://[::1]:1"]) expect(keeps(own), own).toBe(true);
    for (const other of ["http://bursar.example", "http://10.0.0.1", "http://localhost.evil.example"]) expect(keeps(other), other).toBe(false);
  });

  it("survive damaged settings", () => {
    expect(parsePreferences("{")).toEqual({ theme: "system", zone: "local", person: "role", shortcuts: "on" });
    expect(parsePreferences('{"theme":"neon","zone":"utc","person":7,"shortcuts":"off"}')).toEqual({ theme: "system", zone: "utc", person: "role", shortcuts: "off" });
  });

  it("move the cursor within the rows", () => {
    expect(moveCursor("j", -1, 3)).toBe(0);
    expect(moveCursor("j", 2, 3)).toBe(2);
    expect(moveCursor("k", 0, 3)).toBe(0);
    expect(moveCursor("x", 0, 3)).toBeUndefined();
  });

  it("find the records of a change in every form of the header", () => {
    expect(recordPlaces("139")).toEqual([{ machine: "ledger", position: 139 }]);
    expect(recordPlaces("cell-eu:45, ledger-0:139")).toEqual([{ machine: "cell-eu", position: 45 }, { machine: "ledger-0", position: 139 }]);
    expect(recordPlaces("directory:7")).toEqual([{ machine: "directory", position: 7 }]);
    expect(recordPlaces(undefined)).toEqual([]);
    expect(recordPlaces("<img>:1,x:")).toEqual([]);
  });

  it("mixes colours", () => {
    expect(mix(parseHex("#000"), parseHex("#ffffff"), 0.5)).toBe("#808080");
    expect(parseHex("#1af")).toEqual([0x11, 0xaa, 0xff]);
  });
});

describe("the band of a forecast", () => {
  const now = Date.parse("2026-11-17T14:00:00Z");
  const day = (ago: number, perHour: number) => Array.from({ length: 24 }, (_, i) => ({ at: rfc3339(now - ago * DAY - i * HOUR), amount: String(perHour) }));

  it("has the averages of the last day, three days and week as its edges", () => {
    const points = [8, 2, 2, 1, 1, 0, 0].flatMap((rate, ago) => day(ago, rate));
    expect(rateBand([...points, ...day(7, 100)], now)).toEqual({ low: micros("2"), high: micros("8") });
    expect(rateBand(day(5, 7), now)).toEqual({ low: 0n, high: micros("1") });
  });

  it("is absent where nothing was spent", () => {
    expect(rateBand([], now)).toBeUndefined();
    expect(rateBand(day(0, 0), now)).toBeUndefined();
  });
});

describe("a month of finance", () => {
  const statement = (opening: string, closing: string, movements: [string, string][]) =>
    ({ opening, closing, movements: movements.map(([type, amount]) => ({ type, amount, count: 1 })) }) as unknown as Statement;
  const of = (text: string) => text.split(" ").map((amount) => micros(amount));

  it("adds up from its statement and from what is held, spent and expired at its ends", () => {
    const moved = statement("10", "62.5", [["granted", "100"], ["held", "-40"], ["returned", "5"], ["refunded", "0.5"], ["expired", "-3"], ["moved", "-10"]]);
    const row = monthRow("2026-11", moved, [of("2 7"), of("20 49.5"), of("1 4")]);
    expect(row).toMatchObject({ opening: micros("12"), granted: micros("100"), spent: micros("29.5"), expired: micros("3"), left_other: micros("10"), held: micros("7"), left: micros("62.5") });
    expect(difference(row)).toBe(0n);
  });

  it("says what is missing where the sources disagree", () => {
    const row = monthRow("2026-11", statement("0", "90", [["granted", "100"]]), [of("0 0"), of("0 9"), of("0 0")]);
    expect(difference(row)).toBe(micros("1"));
  });
});

describe("the chart of a region", () => {
  it("puts its figures on one axis and leaves out what is not known", () => {
    const series = (metric: string, points: [string, string][]) => ({ region: "eu", metric, as_of: "", points: points.map(([at, value]) => ({ at, value })) }) as unknown as RegionSeries;
    const [early, late] = ["2026-11-17T14:00:00Z", "2026-11-17T14:01:00Z"] as const;
    const chart = regionChart([series("gpus_allocated", [[early, "4"], [late, "5.5"]]), series("jobs_waiting", [[late, "2"]])]);
    expect(chart.at).toEqual([Date.parse(early), Date.parse(late)]);
    expect(chart.series.map(({ name, values }) => [name, values])).toEqual([["GPUs allocated", [micros("4"), micros("5.5")]], ["Jobs waiting", [null, micros("2")]]]);
  });
});

describe("words and sums found on a walk", () => {
  it("sums what accounts spend now once, wherever the scope begins", () => {
    const share = (account: string, per_hour: string) => ({ account, per_hour }) as ShareEntry;
    expect(spendingNow([share("acme", "5"), share("acme:nlp", "3"), share("umbra", "2")])).toBe(micros("7"));
    expect(spendingNow([share("acme:nlp", "3"), share("acme:nlp:chat", "1"), share("acme:nlp:pretrain", "2")])).toBe(micros("3"));
  });

  it("shows a difference of shares with its sign", () => {
    expect([points(micros("0.247")), points(-micros("0.239")), points(0n)]).toEqual(["+24.7 points", "−23.9 points", "0 points"]);
  });

  it("names each grant once", () => {
    expect(bySource([{ grant: "a", amount: "1.5" }, { grant: "b", amount: "2" }, { grant: "a", amount: "0.25" }])).toEqual([["a", micros("1.75")], ["b", micros("2")]]);
  });

  it("returns after the sign-in to pages of the server alone", () => {
    const to = (next: string) => returnTo(`?next=${encodeURIComponent(next)}`);
    expect(to("/auth/device?code=BBBB-CCCC")).toBe("/auth/device?code=BBBB-CCCC");
    expect(to("/auth/cli?port=1")).toBe("/auth/cli?port=1");
    for (const other of ["//evil.example", "https://evil.example/auth/cli?", "/auth/cli.evil", "/auth/login?next=x", "javascript:alert(1)", "/jobs", ""]) expect(to(other), other).toBeUndefined();
    expect(returnTo("")).toBeUndefined();
  });
});
