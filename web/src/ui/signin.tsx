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
        {error ? <ProblemNote error={error} /> : null}
        <button className="button primary wide" type="submit" disabled={busy || !key.trim()}>{busy ? "Signing in" : "Sign in with key"}</button>
        {oidc ? <a className="button" href={`${oidc.url}?next=${encodeURIComponent(next)}`}>Sign in with {visible(oidc.name)}</a> : null}
        <p className="small muted">No key yet? An administrator makes one: <code>bursar key create --role viewer --scope ACCOUNT --name NAME</code></p>
      </form>
    </main>
  );
}
