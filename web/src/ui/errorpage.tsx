import type { ErrorComponentProps } from "@tanstack/react-router";
import { ProblemNote } from "./messages";

/** A page that could not be drawn. The menu keeps working. */
export function ErrorPage({ error, reset }: ErrorComponentProps) {
  return <div className="page"><h1>This page could not be shown</h1><ProblemNote error={error instanceof Error ? error : new Error(String(error))} retry={reset} /></div>;
}
