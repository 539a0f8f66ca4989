import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { signIn, signInMethods, type Session } from "../api/session";
import { visible } from "../format";
import { ProblemNote } from "./messages";

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
  const next = location.pathname + location.search;
  return (
    <main className="sign-in">
      <form onSubmit={(event) => void submit(event)}>
        <div className="section">
          <h1>Sign in to Bursar</h1>
          <p className="muted">Paste an API key. It is sent once and not kept by this page; the session ends when you sign out or leave it idle.</p>
        </div>
        <label className="field">API key
          <input type="password" name="key" value={key} autoComplete="current-password" autoFocus spellCheck={false} required onChange={(event) => setKey(event.target.value)} />
        </label>
        {error ? <ProblemNote error={error} /> : null}
        <button className="button primary" type="submit" disabled={busy || !key.trim()}>{busy ? "Signing in" : "Sign in with key"}</button>
        {oidc ? <a className="button" href={`${oidc.url}?next=${encodeURIComponent(next)}`}>Sign in with {visible(oidc.name)}</a> : null}
        <p className="small muted">No key yet? An administrator makes one: <code>bursar key create --role viewer --scope ACCOUNT --name NAME</code></p>
      </form>
    </main>
  );
}
