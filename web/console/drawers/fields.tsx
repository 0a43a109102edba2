// Fields with their labels, lists that are read page by page, and how values are written.
import { useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { call, type Problem } from "../api";
import { written } from "../../money";
import { asProblem, ProblemText } from "../problem";

// Where a field keeps its value: a signal, or what stands for one.
export interface Held<T> { value: T }
interface FieldProps { label: string; value: Held<string>; hint?: string; name?: string }

export function Text({ label, value, hint, name, lines, max = 200, required, placeholder }:
  FieldProps & { lines?: number; max?: number; required?: boolean; placeholder?: string }) {
  const shared = {
    class: "field", name: name ?? label.toLowerCase(), value: value.value, maxLength: max, required: !!required,
    placeholder: placeholder ?? "", onInput: (event: { currentTarget: { value: string } }) => { value.value = event.currentTarget.value; },
  };
  return (
    <label class="labelled">{label}{hint && <span class="muted"> {hint}</span>}
      {lines ? <textarea {...shared} rows={lines} /> : <input {...shared} />}
    </label>
  );
}

export function Figure({ label, value, hint, name, min = 0, max, step = 1, slider, optional }:
  FieldProps & { min?: number; max?: number; step?: number | "any"; slider?: number; optional?: boolean }) {
  const set = (event: { currentTarget: { value: string } }) => { value.value = event.currentTarget.value; };
  return (
    <div class="labelled">
      <label>{label}{hint && <span class="muted"> {hint}</span>}
        <input class="field num" type="number" inputMode="decimal" name={name ?? label.toLowerCase()} value={value.value} min={min}
          max={max} step={step} required={!optional} onInput={set} />
      </label>
      {slider !== undefined && <input type="range" aria-label={`${label}, slider`} value={value.value} min={min} max={slider} step={1} onInput={set} />}
    </div>
  );
}

export function Check({ label, value, name }: { label: string; value: Held<boolean>; name?: string }) {
  return (
    <label class="check"><input type="checkbox" name={name} checked={value.value}
      onChange={(event) => { value.value = event.currentTarget.checked; }} /><span>{label}</span></label>
  );
}

export function Choice({ label, value, options, name }: FieldProps & { options: [string, string][] }) {
  return (
    <label class="labelled">{label}
      <select class="field" name={name ?? label.toLowerCase()} onChange={(event) => { value.value = event.currentTarget.value; }}>
        {options.map(([one, words]) => <option key={one} value={one} selected={one === value.value}>{words}</option>)}
      </select>
    </label>
  );
}

// A date and a time by the clock of this device; empty is none.
export function Moment({ label, value, name, hint }: FieldProps) {
  return (
    <label class="labelled">{label}{hint && <span class="muted"> {hint}</span>}
      <input class="field" type="datetime-local" name={name ?? label.toLowerCase()} value={value.value}
        onInput={(event) => { value.value = event.currentTarget.value; }} />
    </label>
  );
}

// A time of the API as the text of such a field, and the way back.
export const momentOf = (text: string | null): string => {
  if (!text) return "";
  const when = new Date(text);
  return new Date(when.getTime() - when.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
};
export const timeOf = (text: string): string | null => text ? new Date(text).toISOString() : null;

// A number of a field, or null while it holds none.
export const numberOf = (text: string): number | null => text.trim() === "" || !Number.isFinite(Number(text)) ? null : Number(text);
// The lines or words of a field.
export const wordsOf = (text: string): string[] => text.split(/[\s,;]+/).filter(Boolean);

// A list that comes page by page: `next` is the address of the next page.
export interface Pages<T> { rows: Signal<T[] | null>; next: Signal<string | null>; problem: Signal<Problem | null>; read: () => Promise<void>; more: () => Promise<void> }

export function usePages<T>(path: string, name: string): Pages<T> {
  const rows = useSignal<T[] | null>(null);
  const next = useSignal<string | null>(null);
  const problem = useSignal<Problem | null>(null);
  const load = async (address: string, before: T[]) => {
    try {
      const { data } = await call<Record<string, unknown>>("GET", address);
      rows.value = [...before, ...data[name] as T[]];
      next.value = (data.next as string | null | undefined) ?? null;
      problem.value = null;
    } catch (failed) { problem.value = asProblem(failed); }
  };
  useEffect(() => { rows.value = null; void load(path, []); }, [path]);
  return {
    rows, next, problem, read: () => load(path, []),
    more: async () => { if (next.value) await load(next.value, rows.value ?? []); },
  };
}

export function Listed<T>({ pages, row, none }: { pages: Pages<T>; row: (one: T) => ComponentChildren; none: string }) {
  const found = pages.rows.value;
  return (
    <>
      <ProblemText problem={pages.problem.value} />
      {found === null && !pages.problem.value && <p class="muted" role="status">Reading…</p>}
      {found?.length === 0 && <p class="muted" role="status">{none}</p>}
      {!!found?.length && <ul class="rows">{found.map(row)}</ul>}
      {pages.next.value && <button type="button" class="button" onClick={() => void pages.more()}>Show more</button>}
    </>
  );
}

// Money of minor units, as the operator's browser writes it.
export const money = (minor: number, currency: string): string => written(minor, currency);

const time = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
export const at = (text: string | null | undefined): string => {
  if (!text) return "–";
  const when = new Date(text);
  return (when.toDateString() === new Date().toDateString() ? clock : time).format(when);
};

// A secret that is shown this once.
export function Once({ text, label }: { text: string; label: string }) {
  const copied = useSignal(false);
  const copy = async () => {
    try { await navigator.clipboard.writeText(text); copied.value = true; } catch { copied.value = false; }
  };
  return (
    <div class="outcome good" data-once>
      <b>{label} Shown once: copy it now.</b>
      <textarea class="field mono" readOnly rows={Math.min(8, text.split("\n").length)} aria-label={label} value={text}
        onFocus={(event) => event.currentTarget.select()} />
      <button type="button" class="button" onClick={() => void copy()}>{copied.value ? "Copied" : "Copy"}</button>
    </div>
  );
}
