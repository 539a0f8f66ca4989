import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { endSession, PERSONS, personOf, signOut } from "../api/session";
import { visible, words } from "../format";
import { When } from "../ui/basics";
import { useSession } from "../ui/context";
import { ProblemNote } from "../ui/messages";
import { Choice, Page, Section } from "../ui/page";
import { setPreferences, usePreferences } from "../ui/preferences";

export const PERSON_NAMES = { researcher: "Researcher", lead: "Team lead", finance: "Finance", operator: "Operator", support: "Support" } as const;

/** Ends every session of the caller, this one too. */
function EndSessions() {
  const queries = useQueryClient();
  const [error, setError] = useState<Error | null>(null);
  const end = async () => {
    setError(null);
    try {
      await signOut(true);
      endSession(queries);
    } catch (problem) {
      setError(problem as Error);
    }
  };
  return (
    <>
      <p className="prose">Signing out everywhere ends this session and every other one of the same key or person, in browsers and on command lines. The same as <code>bursar logout --everywhere</code>. Keys stay valid.</p>
      <p><button type="button" className="button" onClick={() => void end()}>Sign out everywhere</button></p>
      {error ? <ProblemNote error={error} /> : null}
    </>
  );
}

export function SettingsPage() {
  const session = useSession();
  const { theme, zone, person, shortcuts } = usePreferences();
  return (
    <Page title="Settings" about="Kept in this browser.">
      <Section title="Colours"><Choice label="Colours" value={theme} choices={[["system", "As the system"], ["light", "Light"], ["dark", "Dark"]]} onChange={(value) => setPreferences({ theme: value })} /></Section>
      <Section title="Times"><Choice label="Times" value={zone} choices={[["local", "Local zone"], ["utc", "UTC"]]} onChange={(value) => setPreferences({ zone: value })} /></Section>
      <Section title="First page"><Choice label="First page" value={person} choices={[["role", `By role (${PERSON_NAMES[personOf(session)]})`], ...PERSONS.map((one) => [one, PERSON_NAMES[one]] as const)]} onChange={(value) => setPreferences({ person: value })} /></Section>
      <Section title="Keyboard"><Choice label="Single-key shortcuts" value={shortcuts} choices={[["on", "Single-key shortcuts"], ["off", "No single-key shortcuts"]]} onChange={(value) => setPreferences({ shortcuts: value })} /></Section>
      <Section title="Session">
        <dl className="facts">
          <dt>Role</dt><dd>{words(session.role)}</dd>
          <dt>Scope</dt><dd>{visible(session.scope)}</dd>
          {session.name ? <><dt>Name</dt><dd>{visible(session.name)}</dd></> : null}
          <dt>Ends</dt><dd>{session.expires_at ? <When at={session.expires_at} /> : "when you sign out"}</dd>
        </dl>
        <EndSessions />
      </Section>
      <Section title="API"><p className="prose"><a href="/docs">Reference of the HTTP API</a>. Everything shown here comes from it.</p></Section>
    </Page>
  );
}
