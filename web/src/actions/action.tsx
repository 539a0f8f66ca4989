import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { cloneElement, isValidElement, useId, useRef, useState, type FormEvent, type ReactNode } from "react";
import { freshKey, isRefusal, read, type Answer } from "../api/client";
import { may } from "../api/session";
import type { AuditRecord, Page } from "../api/types";
import { visible, words } from "../format";
import { Copy, When } from "../ui/basics";
import { useSession } from "../ui/context";
import { Dialog } from "../ui/dialog";
import { ProblemNote } from "../ui/messages";

interface Props {
  title: string;
  /** The verb of the button. */
  verb: string;
  danger?: boolean;
  children?: ReactNode;
  /** What will change, from the server's present numbers; absent while the form is incomplete. */
  effect: ReactNode;
  ready: boolean;
  /** Sends the change. The key makes a repeat harmless. */
  run: (idempotencyKey: string) => Promise<Answer<unknown> | Answer<unknown>[]>;
  /** What has changed. */
  done: (answers: Answer<unknown>[]) => ReactNode;
  close: () => void;
}

/** An action: form, effect, confirmation, then the audit record. */
export function ActionDialog({ title, verb, danger, children, effect, ready, run, done, close }: Props) {
  const queries = useQueryClient();
  const key = useRef(freshKey());
  const [answers, setAnswers] = useState<Answer<unknown>[] | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  // The change may have been made. Only the same request again, under the same key, is harmless.
  const isUnknown = error !== null && !isRefusal(error);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const answer = await run(key.current);
      setAnswers(Array.isArray(answer) ? answer : [answer]);
      await queries.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "session" });
    } catch (problem) {
      setError(problem as Error);
      // A refusal is kept under the key; a changed request needs another.
      if (isRefusal(problem as Error)) key.current = freshKey();
    } finally {
      setBusy(false);
    }
  };
  if (answers) {
    return (
      <Dialog title={title} close={close}>
        <div className="note-box tone-green" role="status"><strong>Done</strong>{done(answers)}</div>
        {answers.slice(0, 5).map((answer, i) => <Receipt key={i} answer={answer} close={close} />)}
        <div className="actions"><button type="button" className="button primary" onClick={close}>Close</button></div>
      </Dialog>
    );
  }
  return (
    <Dialog title={title} close={close}>
      <form className="section" onSubmit={(event) => void submit(event)}>
        {children ? <fieldset className="form" disabled={isUnknown || busy}>{children}</fieldset> : null}
        <div className="effect" aria-live="polite"><h3>Effect</h3>{effect ?? <p className="muted">Fill in the form to see what will change.</p>}</div>
        {error ? <ProblemNote error={error} isChange /> : null}
        {isUnknown ? <p className="prose">It is not known whether this was done. Send the same again: it is done once, however often it is sent.</p> : null}
        <div className="actions">
          <button type="submit" className={danger ? "button danger" : "button primary"} disabled={busy || !(ready || isUnknown)}>{busy ? "Working" : isUnknown ? `${verb}: send again` : verb}</button>
          <button type="button" className="button" onClick={close}>Close without change</button>
        </div>
      </form>
    </Dialog>
  );
}

/** The records in `139` or `ledger-0:139,cell-eu:45`: the machine and the position. */
export function recordPlaces(header: string | undefined): { machine: string; position: number }[] {
  const parts = (header ?? "").split(",").map((part) => /^(?:([a-z][a-z0-9._-]*):)?(\d+)$/i.exec(part.trim()));
  return parts.flatMap((part) => (part ? [{ machine: part[1] ?? "ledger", position: Number(part[2]) }] : []));
}

const isLedger = ({ machine }: { machine: string }) => /^ledger(-\d+)?$/.test(machine);

/** Where the change is in the journals, and its records for those who may read them. */
function Receipt({ answer, close }: { answer: Answer<unknown>; close: () => void }) {
  const session = useSession();
  const places = recordPlaces(answer.position);
  const position = places.find(isLedger)?.position;
  // Records of the ledger are in one place; others name their machine.
  const others = places.filter((place) => !isLedger(place));
  return (
    <dl className="facts" aria-label="Audit record">
      {position === undefined ? null : <><dt>Journal position</dt><dd className="mono">{position}</dd></>}
      {others.map((place) => [<dt key={place.machine}>Audit record</dt>, <dd key={`${place.machine} record`}>{may(session, "audit") ? <Link to="/audit" search={{ machine: place.machine, position: String(place.position), open: `${place.position}.0` } as never} onClick={close}>record {place.position} of {visible(place.machine)}</Link> : <>record {place.position} of {visible(place.machine)}</>}, by {visible(session.actor)}</dd>])}
      {answer.requestId ? <><dt>Request</dt><dd className="mono">{visible(answer.requestId)}<Copy text={answer.requestId} label="Copy the request id" /></dd></> : null}
      {places.map((place) => <RecordFacts key={place.machine} {...place} />)}
    </dl>
  );
}

/** What a record says. */
function RecordFacts({ machine, position }: { machine: string; position: number }) {
  const session = useSession();
  const of = isLedger({ machine }) ? undefined : machine;
  const { data: record } = useQuery({
    queryKey: ["receipt", machine, position],
    enabled: may(session, "audit"),
    queryFn: async ({ signal }) => (await read<Page<AuditRecord>>("/v1/audit", { machine: of, position, limit: 1 }, signal)).data[0] ?? null,
  });
  if (!record) return null;
  return (
    <>
      {of ? null : <><dt>Audit record</dt><dd>{words(record.command ?? "timer")} by {visible(record.actor) || "a timer"}, <When at={record.at} /></dd></>}
      {record.about?.length ? <><dt>About</dt><dd>{record.about.map(({ type, id }) => `${words(type)} ${visible(id)}`).join(", ")}</dd></> : null}
      <dt>Events</dt><dd>{record.events.map(words).join(", ")}</dd>
      <dt>Command</dt><dd><code>bursar audit show {record.position}{of ? ` --machine ${of}` : ""}</code></dd>
    </>
  );
}

/** One field of a form. */
export function Field({ label, hint, error, span, children }: { label: string; hint?: ReactNode; error?: string | false | undefined; span?: boolean; children: ReactNode }) {
  const note = useId();
  const described = isValidElement<{ "aria-describedby"?: string }>(children) ? cloneElement(children, { "aria-describedby": note }) : children;
  return (
    <div className={span ? "field span" : "field"}>
      <label className="field">{label}{described}</label>
      <span id={note} className={error ? "field-error" : "hint"}>{error || hint}</span>
    </div>
  );
}
