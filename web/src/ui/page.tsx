import { useEffect, type ReactNode } from "react";
import { visible } from "../format";
import { usePageSearch } from "./search";

interface Props {
  title: string;
  /** One line below the title. */
  about?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  /** Details beside the list; the list keeps its place and filters. */
  panel?: ReactNode;
}

/** A page: its title, what can be done, its parts. */
export function Page({ title, about, actions, children, panel }: Props) {
  useEffect(() => {
    document.title = `${visible(title)} · Bursar`;
  }, [title]);
  const body = (
    <div className="page">
      <div className="page-head">
        <div className="grow"><h1>{visible(title)}</h1>{about ? <p>{about}</p> : null}</div>
        {actions ? <div className="actions">{actions}</div> : null}
      </div>
      {children}
    </div>
  );
  return panel ? <div className="split">{body}{panel}</div> : body;
}

/** Details of one row. Esc closes it. */
export function Panel({ title, children }: { title: ReactNode; children: ReactNode }) {
  const [, change] = usePageSearch();
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) change({ open: undefined });
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [change]);
  return (
    <aside className="panel" aria-label="Details">
      <div className="section-head">
        <h2>{title}</h2><span className="grow" />
        <button type="button" className="icon-button" aria-label="Close details" onClick={() => change({ open: undefined })}>✕</button>
      </div>
      {children}
    </aside>
  );
}

export const Section = ({ title, unit, actions, children }: { title: string; unit?: string; actions?: ReactNode; children: ReactNode }) => (
  <section className="section">
    <div className="section-head"><h2>{title}</h2>{unit ? <span className="faint small">{unit}</span> : null}<span className="grow" />{actions}</div>
    {children}
  </section>
);

/** One of a few values; the address keeps it. */
export function Choice<T extends string>({ label, value, choices, onChange }: { label: string; value: T; choices: readonly (readonly [T, string])[]; onChange: (value: T) => void }) {
  return (
    <span className="switch" role="group" aria-label={label}>
      {choices.map(([choice, name]) => (
        <button key={choice} type="button" aria-pressed={choice === value} onClick={() => onChange(choice)}>{name}</button>
      ))}
    </span>
  );
}
