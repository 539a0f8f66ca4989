import { useQuery, useQueryClient } from "@tanstack/react-query";
import { cloneElement, isValidElement, useId, useRef, useState, type FormEvent, type ReactNode } from "react";
import { freshKey, read, type Answer } from "../api/client";
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
      // The refusal is kept under the key; a changed request needs another.
      key.current = freshKey();
    } finally {
      setBusy(false);
    }
  };
  if (answers) {
    return (
      <Dialog title={title} close={close}>
        <div className="note-box tone-green" role="status"><strong>Done</strong>{done(answers)}</div>
        {answers.slice(0, 5).map((answer, i) => <Receipt key={i} answer={answer} />)}
        <div className="actions"><button type="button" className="button primary" onClick={close}>Close</button></div>
      </Dialog>
    );
  }
  return (
    <Dialog title={title} close={close}>
      <form className="section" onSubmit={(event) => void submit(event)}>
        {children ? <div className="form">{children}</div> : null}
        <div className="effect" aria-live="polite"><h3>Effect</h3>{effect ?? <p className="muted">Fill in the form to see what will change.</p>}</div>
        {error ? <ProblemNote error={error} /> : null}
        <div className="actions">
          <button type="submit" className={danger ? "button danger" : "button primary"} disabled={!ready || busy}>{busy ? "Working" : verb}</button>
          <button type="button" className="button" onClick={close}>Close without change</button>
        </div>
      </form>
    </Dialog>
  );
}

/** The position of the ledger in `139` or `ledger-0:139,cell-eu:45`. */
export function ledgerPosition(header: string | undefined): number | undefined {
  const found = header?.split(",").map((part) => /^(?:ledger-\d+:)?(\d+)$/.exec(part.trim())?.[1]).find(Boolean);
  return found ? Number(found) : undefined;
}

/** Where the change is in the journal, and its record for those who may read it. */
function Receipt({ answer }: { answer: Answer<unknown> }) {
  const session = useSession();
  const position = ledgerPosition(answer.position);
  const record = useQuery({
    queryKey: ["receipt", position],
    enabled: position !== undefined && may(session, "audit"),
    queryFn: async ({ signal }) => {
      const page = await read<Page<AuditRecord>>("/v1/audit", { after: (position ?? 1) - 1, limit: 100 }, signal);
      return page.data.find((one) => one.position === position) ?? null;
    },
  });
  return (
    <dl className="facts" aria-label="Audit record">
      {answer.position ? <><dt>Journal position</dt><dd className="mono">{visible(answer.position)}</dd></> : null}
      {answer.requestId ? <><dt>Request</dt><dd className="mono">{visible(answer.requestId)}<Copy text={answer.requestId} label="Copy the request id" /></dd></> : null}
      {record.data ? (
        <>
          <dt>Audit record</dt><dd>{words(record.data.command ?? "timer")} by {visible(record.data.actor) || "a timer"}, <When at={record.data.at} /></dd>
          <dt>Events</dt><dd>{record.data.events.map(words).join(", ")}</dd>
        </>
      ) : null}
    </dl>
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
