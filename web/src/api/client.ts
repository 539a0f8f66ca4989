import { millis } from "../format";
import type { Problem } from "./types";

/** How long a request may take. */
const REQUEST_TIMEOUT = 15_000;

/** A refusal or failure of a request, with what to do next. */
export class ProblemError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.title);
  }
}

/** The server did not answer. */
export class OfflineError extends Error {}

/** Whether a change was certainly not made. After any other error it may have been. */
export const isRefusal = (error: Error): boolean => error instanceof ProblemError && !error.problem.retryable;

interface Credentials {
  csrfToken: string | undefined;
  /** Only in development: the key itself, for servers without sessions. Never stored. */
  bearer: string | undefined;
}

const credentials: Credentials = { csrfToken: undefined, bearer: undefined };
/** Whether the time of the server is known. */
let hasTime = false;
let onSignedOut: () => void = () => {};
/** An instant of the server, and the local time since the page began at which it was learned. */
let clock = { server: Date.now(), local: performance.now() };

export function setCsrfToken(token: string | undefined) {
  credentials.csrfToken = token;
}

export function setBearer(key: string | undefined) {
  if (import.meta.env.DEV) credentials.bearer = key;
}

/** Called when the server no longer accepts the session. */
export function whenSignedOut(handler: () => void) {
  onSignedOut = handler;
}

/** The server's time. It may have a clock of its own. It never goes back, also if the local clock is set. */
export const serverNow = () => clock.server + (performance.now() - clock.local);

/** The event feed learned that the session has ended. */
export const signedOut = () => onSignedOut();

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
export type Query = Record<string, string | number | boolean | null | undefined>;

/** A person who has done nothing for this long is away: what the page reads then keeps no session. */
const AWAY_AFTER = 30_000;
let activeAt = Date.now();

/** Whether what is read now is read by the page alone. */
export const isAway = (now = Date.now()): boolean => now - activeAt > AWAY_AFTER;

/** Notes what people do with the page. */
export function watchActivity() {
  const note = () => { activeAt = Date.now(); };
  for (const kind of ["pointerdown", "pointermove", "keydown", "wheel", "touchstart"]) addEventListener(kind, note, { capture: true, passive: true });
}

export interface Call {
  query?: Query;
  body?: unknown;
  idempotencyKey?: string;
  signal?: AbortSignal | undefined;
  /** Answers that are not JSON. */
  text?: boolean;
}

/** An answer and where it is in the journal. */
export interface Answer<T> {
  data: T;
  position: string | undefined;
  requestId: string | undefined;
}

/** A path with its parts escaped: path`/v1/jobs/${id}`. */
export function path(strings: TemplateStringsArray, ...parts: string[]): string {
  return strings.reduce((text, piece, i) => text + piece + (i < parts.length ? encodeURIComponent(parts[i] ?? "") : ""), "");
}

function address(to: string, query: Query | undefined): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return text ? `${to}?${text}` : to;
}

function headers(method: Method, call: Call): Headers {
  const all = new Headers({ Accept: call.text ? "text/plain" : "application/json" });
  if (call.body !== undefined) all.set("Content-Type", "application/json");
  if (call.idempotencyKey) all.set("Idempotency-Key", call.idempotencyKey);
  // Such a read does not keep an idle session from ending.
  if (method === "GET" && isAway()) all.set("Bursar-Background", "true");
  if (method !== "GET" && credentials.csrfToken) all.set("X-CSRF-Token", credentials.csrfToken);
  if (import.meta.env.DEV && credentials.bearer) all.set("Authorization", `Bearer ${credentials.bearer}`);
  return all;
}

/** Headers of a long request that reads the event feed. */
export function feedHeaders(lastEventId: string | undefined): Headers {
  const all = headers("GET", {});
  all.set("Accept", "text/event-stream");
  all.set("Bursar-Background", "true");
  if (lastEventId) all.set("Last-Event-ID", lastEventId);
  return all;
}

export async function send<T>(method: Method, to: string, call: Call = {}): Promise<Answer<T>> {
  const timeout = AbortSignal.timeout(REQUEST_TIMEOUT);
  const signal = call.signal ? AbortSignal.any([call.signal, timeout]) : timeout;
  let response: Response;
  try {
    response = await fetch(address(to, call.query), {
      method,
      headers: headers(method, call),
      body: call.body === undefined ? null : JSON.stringify(call.body),
      credentials: "same-origin",
      redirect: "error",
      signal,
    });
  } catch (error) {
    if (call.signal?.aborted) throw error;
    throw new OfflineError(timeout.aborted ? "The server did not answer in time." : "The server cannot be reached.");
  }
  if (!response.ok) throw await failure(response, to);
  const position = response.headers.get("Bursar-Position") ?? undefined;
  const requestId = response.headers.get("Bursar-Request-Id") ?? undefined;
  if (call.text) return { data: (await response.text()) as T, position, requestId };
  const text = await response.text();
  const data = (text ? JSON.parse(text) : undefined) as T;
  readClock(data);
  return { data, position, requestId };
}

function readClock(data: unknown) {
  if (typeof data !== "object" || data === null) return;
  const time = millis((data as { as_of?: string }).as_of);
  if (time !== undefined) learnTime(time);
}

/** Learns the server's time. Answers overtake each other: an earlier instant says nothing new. */
export function learnTime(server: number) {
  if (server > serverNow() || !hasTime) clock = { server, local: performance.now() };
  hasTime = true;
}

async function failure(response: Response, to: string): Promise<Error> {
  const type = response.headers.get("Content-Type") ?? "";
  if (type.includes("json")) {
    const problem = (await response.json()) as Problem;
    if (response.status === 401 && to !== "/v1/session") onSignedOut();
    return new ProblemError(problem);
  }
  if (response.status >= 500) return new OfflineError(`The server answered ${response.status}.`);
  return new ProblemError({
    type: "about:blank", title: `Unexpected answer ${response.status}`, status: response.status,
    detail: "The answer is not one of this API. A proxy may be in between.", code: "internal",
    retryable: false, request_id: response.headers.get("Bursar-Request-Id") ?? "",
  });
}

/** A GET whose position does not matter. */
export async function read<T>(to: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return (await send<T>("GET", to, { ...(query ? { query } : {}), signal })).data;
}

/** A random key under which a change has one effect, however often it is sent. */
export function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `web-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
