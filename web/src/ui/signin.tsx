import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { signIn, signInMethods, type Session } from "../api/session";
import { visible } from "../format";
import { Mark } from "./mark";
import { ProblemNote } from "./messages";

/** Pages of the server, outside the dashboard, that a person signs in for. */
const SERVER_PAGES = ["/auth/cli", "/auth/device"];

/** The page of the server that asked to sign in first, from `?next=` of the address. */
export function returnTo(search = location.search): string | undefined {
  const next = new URLSearchParams(search).get("next") ?? "";
  return SERVER_PAGES.some((page) => next === page || next.startsWith(`${page}?`)) ? next : undefined;
}

/** Whether a browser keeps the cookie of a session for a page from here: over TLS, or on this machine. */
export const keepsSessions = ({ protocol, hostname }: Pick<Location, "protocol" | "hostname">): boolean =>
  protocol === "https:" || /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);

/** Sign-in with an API key, or with the organisation's identity provider. */
export function SignIn({ onSession }: { onSession: (session: Session) => void }) {
  const [key, setKey] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      onSession(await signIn(key.trim()));
    } catch (problem) {
      setError(problem as Error);
    } finally {
      setBusy(false);
    }
  };
  const methods = useQuery({ queryKey: ["session", "methods"], queryFn: signInMethods, staleTime: Infinity, retry: false });
  const oidc = methods.data?.oidc;
  const holds = keepsSessions(location);
  const next = returnTo() ?? location.pathname + location.search;
  return (
    <main className="sign-in">
      <form onSubmit={(event) => void submit(event)}>
        <div className="section">
          <Mark />
          <h1>Sign in to Bursar</h1>
          <p className="muted">Paste an API key. It is sent once and not kept by this page; the session ends when you sign out or leave it idle.</p>
        </div>
        <label className="field">API key
          <input type="password" name="key" value={key} autoComplete="current-password" autoFocus spellCheck={false} required onChange={(event) => setKey(event.target.value)} />
        </label>
        {holds ? null : <div className="note-box tone-orange" role="alert"><strong>A sign-in does not hold here.</strong><span>This page came over plain HTTP from another machine, and browsers keep the session's cookie only over HTTPS. Open the address with <code>https://</code>, or on the machine itself.</span></div>}
        {error ? <ProblemNote error={error} /> : null}
        <button className="button primary wide" type="submit" disabled={busy || !key.trim()}>{busy ? "Signing in" : "Sign in with key"}</button>
        {oidc ? <a className="button" href={`${oidc.url}?next=${encodeURIComponent(next)}`}>Sign in with {visible(oidc.name)}</a> : null}
        <p className="small muted">No key yet? An administrator makes one: <code>bursar key create --role viewer --scope ACCOUNT --name NAME</code></p>
      </form>
    </main>
  );
}
