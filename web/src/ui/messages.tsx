import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { OfflineError, ProblemError } from "../api/client";
import { isCut, MAX_ROWS } from "../api/queries";
import type { Blocker } from "../api/types";
import { visible, words } from "../format";
import { Copy, Skeleton } from "./basics";

/** Why it failed, what to do next, and the id to quote. */
export function ProblemNote({ error, retry, isChange = false }: { error: Error; retry?: (() => void) | undefined; isChange?: boolean }) {
  if (!(error instanceof ProblemError)) {
    const offline = error instanceof OfflineError;
    return (
      <div className="note-box tone-orange" role="alert">
        <strong>{offline ? error.message : "The page could not read the answer."}</strong>
        {isChange && offline ? null : <span className="muted">{offline ? "The last data stays on the page. It is tried again by itself." : visible(error.message)}</span>}
        {retry ? <div className="row"><button type="button" className="button small" onClick={retry}>Try again</button></div> : null}
      </div>
    );
  }
  const { problem } = error;
  return (
    <div className="note-box tone-red" role="alert">
      <strong>{visible(problem.title)}</strong>
      <span>{visible(problem.detail)}</span>
      {problem.blockers?.length ? <Blockers blockers={problem.blockers as Blocker[]} /> : null}
      <div className="row small muted">
        {problem.retryable && retry ? <button type="button" className="button small" onClick={retry}>Try again</button> : null}
        <a className="link" href={`/docs/problems/${encodeURIComponent(problem.code)}`}>{visible(problem.code)}</a>
        {problem.request_id ? <span className="mono">{visible(problem.request_id)}<Copy text={problem.request_id} label="Copy the request id" /></span> : null}
      </div>
    </div>
  );
}

/** Everything that blocks, and the fix for each. */
export function Blockers({ blockers }: { blockers: Blocker[] }) {
  return (
    <ul className="section">
      {blockers.map((blocker, index) => (
        <li key={index}>
          <span className="badge tone-violet">{words(blocker.type)}</span>{" "}
          <span>{visible(blocker.detail)}</span>
          {blocker.fix ? <div className="muted small break">Fix: {visible(blocker.fix)}</div> : null}
        </li>
      ))}
    </ul>
  );
}

export const Empty = ({ children }: { children: ReactNode }) => <div className="empty">{children}</div>;

/** Says which role a page or part needs. */
export const Forbidden = ({ needs }: { needs: string }) => (
  <div className="note-box"><strong>Your key may not see this.</strong><span className="muted">It needs the role {needs}.</span></div>
);

/** Says that a list has more rows than are shown. */
export function FirstOnly({ of, what = "rows" }: { of: { queryKey: readonly unknown[] }[]; what?: string }) {
  return of.some(isCut) ? <p className="muted small" role="note">Only the first {MAX_ROWS.toLocaleString("en-US")} {what} are read. There are more: narrow the list, or use the command line.</p> : null;
}

export type Read<T> = Pick<UseQueryResult<T>, "data" | "error" | "isPlaceholderData" | "refetch">;

/** A read that waits for another one, such as the list of regions: the failure of the first is its own. */
export function afterFirst<T>(first: Read<unknown>, then: Read<T>): Read<T> {
  if (then.data !== undefined || then.error || !first.error) return then;
  return { ...then, error: first.error, refetch: first.refetch as Read<T>["refetch"] };
}

/** Shows data, or the state it is in: loading keeps the layout, errors keep the last data greyed. */
export function Loaded<T>({ query, children, rows = 3, quiet = false }: { query: Read<T>; children: (data: T) => ReactNode; rows?: number; quiet?: boolean }) {
  const { data, error } = query;
  const retry = () => void query.refetch();
  if (data === undefined) {
    if (error) return quiet ? null : <ProblemNote error={error} retry={retry} />;
    return <div className="section" aria-busy="true"><span className="sr">Loading</span>{Array.from({ length: rows }, (_, i) => <div key={i} style={{ height: 20 }}><Skeleton width={`${80 - i * 12}%`} /></div>)}</div>;
  }
  return (
    <>
      {error ? <ProblemNote error={error} retry={retry} /> : null}
      <div className={error ? "stale loaded" : "loaded"}>{children(data)}</div>
    </>
  );
}
