import type { QueryClient } from "@tanstack/react-query";
import { ProblemError, read, send, setBearer, setCsrfToken } from "./client";
import type { components } from "./schema";
import type { Role } from "./types";

/** The signed-in caller: what the server says about the session. */
export type Session = components["schemas"]["SignedIn"];

function keep(session: Session): Session {
  setCsrfToken(session.csrf_token ?? undefined);
  return session;
}

/** The session of the cookie; `null` without one. */
export async function currentSession(): Promise<Session | null> {
  try {
    return keep(await read<Session>("/v1/session"));
  } catch (error) {
    if (error instanceof ProblemError && [401, 404].includes(error.problem.status)) return null;
    throw error;
  }
}

/** How people may sign in at this server. */
export interface SignInMethods {
  key: boolean;
  oidc: { name: string; url: string } | null;
}

export const signInMethods = () => read<SignInMethods>("/auth/methods");

export async function signIn(key: string): Promise<Session> {
  try {
    return keep((await send<Session>("POST", "/v1/session", { body: { key } })).data);
  } catch (error) {
    const missing = error instanceof ProblemError && error.problem.status === 404;
    if (import.meta.env.DEV && missing) return developmentSession(key);
    throw error;
  }
}

/** Forgets everything that the session read, and shows the sign-in. */
export function endSession(queries: QueryClient) {
  queries.removeQueries({ predicate: (query) => query.queryKey[0] !== "session" });
  queries.setQueryData(["session"], null);
}

/** Ends the session, or with `everywhere` every session of the same key or person. */
export async function signOut(everywhere = false): Promise<void> {
  try {
    await send("DELETE", "/v1/session", everywhere ? { query: { everywhere } } : {});
  } catch (error) {
    // It has ended already.
    if (!(error instanceof ProblemError && error.problem.status === 401)) throw error;
  }
  setCsrfToken(undefined);
  setBearer(undefined);
}

/** In development against a server without sessions: the key stays in memory. */
async function developmentSession(key: string): Promise<Session> {
  setBearer(key);
  await read("/v1/accounts", { limit: 1 });
  return { role: "admin", scope: "*", actor: "development", may_issue: true, expires_at: null };
}

/** Roles that may do something, as in the API's table of operations. */
const ALLOWED = {
  submit: ["admin", "billing", "submitter"],
  cancel: ["admin", "billing", "operator", "submitter"],
  preempt: ["admin", "operator"],
  drain: ["admin", "operator"],
  grant: ["admin", "billing"],
  refund: ["admin", "billing"],
  budget: ["admin", "billing"],
  price: ["admin", "billing"],
  keys: ["admin"],
  audit: ["admin", "auditor"],
  cluster: ["admin", "operator"],
} satisfies Record<string, Role[]>;

/** What needs the scope `*` as well. */
const PLATFORM: Action[] = ["price", "cluster"];

export type Action = keyof typeof ALLOWED;

export function may(session: Session, action: Action): boolean {
  const roles: readonly Role[] = ALLOWED[action];
  if (!roles.includes(session.role)) return false;
  if (action === "grant") return session.scope === "*" || session.may_issue;
  return session.scope === "*" || !PLATFORM.includes(action);
}

export function rolesFor(action: Action): string {
  const roles = ALLOWED[action].join(" or ");
  return PLATFORM.includes(action) ? `${roles} with the scope *` : roles;
}

export const PERSONS = ["researcher", "lead", "finance", "operator", "support"] as const;
export type Person = (typeof PERSONS)[number];

/** The first page that suits a role. Settings can choose another. */
export function personOf({ role, scope }: Pick<Session, "role" | "scope">): Person {
  switch (role) {
    case "admin":
      return scope === "*" ? "operator" : "lead";
    case "operator":
    case "agent":
      return "operator";
    case "billing":
    case "auditor":
      return "finance";
    case "submitter":
    case "viewer":
      return "researcher";
  }
}
