import { useQuery } from "@tanstack/react-query";
import { useId } from "react";
import { api } from "../api/queries";
import { parseAmount, parseDuration, type Micros } from "../format";
import { Field } from "./action";

/** An account, with those in the scope as suggestions. */
export function AccountField({ value, onChange, label = "Account" }: { value: string; onChange: (value: string) => void; label?: string }) {
  const accounts = useQuery(api.accounts());
  const list = useId();
  return (
    <Field label={label}>
      <input type="text" list={list} value={value} required spellCheck={false} onChange={(event) => onChange(event.target.value)} />
      <datalist id={list}>{(accounts.data ?? []).map(({ id }) => <option key={id} value={id} />)}</datalist>
    </Field>
  );
}

export interface Typed<T> {
  text: string;
  value: T | undefined;
}

export function AmountField({ label, text, onChange, hint, required = true }: { label: string; text: string; onChange: (text: string) => void; hint?: string; required?: boolean }) {
  const wrong = text !== "" && parseAmount(text) === undefined;
  return (
    <Field label={label} hint={hint ?? "At most six decimals."} error={wrong && "Write a number such as 28.8"}>
      <input type="text" inputMode="decimal" value={text} required={required} aria-invalid={wrong} onChange={(event) => onChange(event.target.value)} />
    </Field>
  );
}

export function DurationField({ label, text, onChange, hint }: { label: string; text: string; onChange: (text: string) => void; hint?: string }) {
  const wrong = text !== "" && parseDuration(text) === undefined;
  return (
    <Field label={label} hint={hint ?? "Such as 90s, 30m, 1h30m, 2d."} error={wrong && "Write a duration such as 1h30m"}>
      <input type="text" value={text} required aria-invalid={wrong} onChange={(event) => onChange(event.target.value)} />
    </Field>
  );
}

export function SelectField<T extends string>({ label, value, choices, onChange, hint }: { label: string; value: T; choices: readonly T[]; onChange: (value: T) => void; hint?: string }) {
  return (
    <Field label={label} hint={hint}>
      <select value={value} onChange={(event) => onChange(event.target.value as T)}>
        {choices.map((choice) => <option key={choice} value={choice}>{choice.replaceAll("_", " ")}</option>)}
      </select>
    </Field>
  );
}

export function TextField({ label, value, onChange, hint, required = false, type = "text" }: { label: string; value: string; onChange: (value: string) => void; hint?: string; required?: boolean; type?: "text" | "date" }) {
  return <Field label={label} hint={hint}><input type={type} value={value} required={required} spellCheck={false} onChange={(event) => onChange(event.target.value)} /></Field>;
}

/** The end of a day in UTC, as `--expires DAY` of the command line means it. */
export const endOfDay = (day: string): string | undefined => (day ? `${day}T23:59:59.999Z` : undefined);

export const positive = (value: Micros | undefined): value is Micros => value !== undefined && value > 0n;
