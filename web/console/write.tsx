// Writes of an operator: one form for each, which sends once per intention, says what came of it, and lets take back
// what can be taken back. A write that lost against somebody else's shows their change and can be applied again.
import { useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { call, newKey, Problem, SecondPersonNeeded, type Answer } from "./api";
import { differences, type Difference } from "./format";
import { session } from "./live";
import { asProblem, may, ProblemText, whyNot } from "./problem";
import { AskSecondPerson } from "./second_person";

const AFTER_CLICK_MS = 600; // the second click of a double click is no second intention
const UNDO_MS = 60_000;
const VERSION_MISMATCH = 412;
const REASON_MAX = 200;
const PROGRESS = new Set([
  "version", "epoch", "called", "active", "calls_per_s", "live_ratio", "effective_rate_per_s", "throttled", "guard_sees",
  "autotune_rate_per_s", "shown_state", "ready", "head_seq", "tail_seq", "calls", "contended_calls", "fair_share",
  "available", "held", "sold", "revenue_minor",
]);

// What one write sends besides its fields.
export interface Intent { key: string; reason: string | null }
export interface Undo { label: string; run: (intent: Intent) => Promise<unknown> }
export interface Done { words: string; undo?: Undo | undefined }

// What a drawer reads and its writes change.
export interface Resource<T> {
  data: Signal<T | null>;
  etag: Signal<string | null>;
  problem: Signal<Problem | null>;
  read: () => Promise<void>;
  take: (answer: Answer<T>) => void;
}

export function useResource<T>(path: string): Resource<T> {
  const data = useSignal<T | null>(null);
  const etag = useSignal<string | null>(null);
  const problem = useSignal<Problem | null>(null);
  const take = (answer: Answer<T>) => {
    data.value = answer.data;
    etag.value = answer.etag;
    problem.value = null;
  };
  const read = async () => {
    try { take(await call<T>("GET", path)); } catch (failed) { problem.value = asProblem(failed); }
  };
  useEffect(() => void read(), [path]);
  return { data, etag, problem, read, take };
}

interface ActionProps {
  label: string;
  verb?: string; // what its form's button says, if not the label
  send: (intent: Intent) => Promise<Done | string>;
  sends?: unknown; // the values it sends: the same values again, after no answer, are the same intention
  children?: ComponentChildren;
  about?: ComponentChildren;
  tone?: "primary" | "danger";
  reason?: "required" | "suggested" | "none"; // required for what cannot be taken back
  typed?: string; // the operator types this to confirm
  needs?: "operator" | "admin";
  wrong?: string | null | undefined; // why it cannot be sent as it stands
  of?: Resource<any>; // what it changes
  asks?: boolean; // shows the form only once its button was pressed
  idle?: boolean; // nothing to do now: only what came of it is shown
  name?: string;
}

interface Conflict { changed: Difference[] }

export function Action(props: ActionProps) {
  const { label, tone = "primary", reason: wants = "suggested", needs = "operator", typed, asks, idle, of } = props;
  const open = useSignal(!asks);
  const reason = useSignal("");
  const confirmed = useSignal("");
  const [busy, sending] = [useSignal(false), useSignal(false)]; // it stays busy a moment longer than it sends
  const problem = useSignal<Problem | null>(null);
  const conflict = useSignal<Conflict | null>(null);
  const done = useSignal<Done | null>(null);
  const needed = useSignal<SecondPersonNeeded | null>(null); // until somebody else approves it, nothing here changes
  const intention = useRef({ key: "", sends: "" });
  const form = useRef<HTMLFormElement>(null);

  const finish = (found: Done | string) => {
    const result = typeof found === "string" ? { words: found } : found;
    done.value = result;
    if (result.undo) setTimeout(() => { if (done.value === result) done.value = { words: result.words }; }, UNDO_MS);
  };
  const attempt = async (run: (intent: Intent) => Promise<Done | string>, sends: unknown, again = false) => {
    if (busy.value && !again) return;
    busy.value = sending.value = true;
    const pressedMs = performance.now();
    problem.value = conflict.value = done.value = needed.value = null;
    const same = JSON.stringify([sends, reason.value]);
    if (!again && (!intention.current.key || intention.current.sends !== same)) intention.current = { key: newKey(), sends: same };
    const before = of?.data.value;
    try {
      finish(await run({ key: intention.current.key, reason: reason.value.trim() || null }));
      intention.current.key = reason.value = confirmed.value = "";
      if (asks) open.value = false;
    } catch (failed) {
      const found = asProblem(failed);
      if (found instanceof SecondPersonNeeded && !again) {
        needed.value = found;
        return;
      }
      if (found.status !== 0 && found.status < 500 && found.status !== 409 && found.status !== 429) intention.current.key = "";
      if (found.status === VERSION_MISMATCH && of) {
        await of.read();
        conflict.value = { changed: differences(settings(before), settings(of.data.value)) };
      } else problem.value = found;
    } finally {
      sending.value = false;
      const rest = AFTER_CLICK_MS - (performance.now() - pressedMs);
      setTimeout(() => { busy.value = false; }, Math.max(0, rest));
    }
  };
  const submit = (event?: Event) => {
    event?.preventDefault();
    void attempt(props.send, props.sends);
  };
  const focus = () => form.current?.querySelector<HTMLElement>("input, textarea, select, [type=submit]")?.focus();
  useEffect(() => { if (!asks && !document.activeElement?.closest("form")) focus(); }, []);
  const show = (shown: boolean) => {
    open.value = shown;
    if (!shown) problem.value = conflict.value = null;
    else {
      done.value = null;
      requestAnimationFrame(focus);
    }
  };

  const allowed = may(needs);
  const unconfirmed = typed !== undefined && confirmed.value.trim() !== typed;
  const ready = allowed && !busy.value && !needed.value && !props.wrong && !unconfirmed && !(wants === "required" && !reason.value.trim());
  const style = tone === "danger" ? "button danger" : "button primary";
  return (
    <div class={`action${asks && open.value ? " asking" : ""}`} data-action={props.name ?? label.toLowerCase()} aria-busy={busy.value}>
      {asks && !open.value && !idle && (
        <div class="ask">
          <button type="button" class={tone === "danger" ? "button danger" : "button"} disabled={!allowed || busy.value}
            aria-expanded={false} onClick={() => show(true)}>{label}…</button>
          {props.about && <span class="muted">{props.about}</span>}
        </div>
      )}
      {open.value && !idle && (
        <form ref={form} onSubmit={submit} autocomplete="off">
          {asks && <h4>{label}</h4>}
          {props.about && <p class="muted">{props.about}</p>}
          <fieldset disabled={!allowed || !!needed.value}>
            {props.children}
            {wants !== "none" && (
              <label class="labelled">Reason{wants === "suggested" && <span class="muted"> (suggested: the log keeps it)</span>}
                <input class="field" name="reason" value={reason} maxLength={REASON_MAX} required={wants === "required"}
                  onInput={(event) => { reason.value = event.currentTarget.value; }} />
              </label>
            )}
            {typed !== undefined && (
              <label class="labelled">Type <code>{typed}</code> to confirm
                <input class="field" name="typed" value={confirmed} spellcheck={false} autocapitalize="off"
                  onInput={(event) => { confirmed.value = event.currentTarget.value; }} />
              </label>
            )}
          </fieldset>
          {props.wrong && allowed && <p class="muted" data-wrong>{props.wrong}</p>}
          {!needed.value && <div class="buttons">
            <button type="submit" class={style} disabled={!ready}>{sending.value ? "Sending…" : props.verb ?? label}</button>
            {asks && <button type="button" class="button" onClick={() => show(false)}>Cancel</button>}
          </div>}
        </form>
      )}
      {!allowed && !idle && session.value?.role !== "viewer" && <p class="muted" data-why-not>{whyNot(needs)}</p>}
      {needed.value && (
        <AskSecondPerson needed={needed.value} again={() => void attempt(props.send, props.sends, true)}
          leave={() => { needed.value = null; intention.current.key = ""; }} />
      )}
      <ProblemText problem={problem.value} />
      {conflict.value && (
        <div class="outcome warn" role="alert" data-conflict>
          <b>Somebody changed this meanwhile</b>
          {conflict.value.changed.length === 0 && <p>Nothing that you see here is different.</p>}
          <ul>{conflict.value.changed.map((one) => (
            <li key={one.name}>{one.name}: <s>{one.before}</s> → <b>{one.after}</b></li>
          ))}</ul>
          <div class="buttons">
            <button type="button" class="button primary" disabled={!ready} onClick={() => submit()}>Apply mine again</button>
            <button type="button" class="button" onClick={() => { conflict.value = null; }}>Leave theirs</button>
          </div>
        </div>
      )}
      <div role="status">
        {done.value && (
          <div class="outcome good" data-done>
            <span>{done.value.words}</span>
            {done.value.undo && (
              <button type="button" class="button small" disabled={busy.value} onClick={() => {
                const undo = done.value!.undo!;
                void attempt(async (intent) => { await undo.run(intent); return "Taken back."; }, ["undo", undo.label]);
              }}>{done.value.undo.label}</button>
            )}
          </div>
        )}
      </div>
    </div>
  );
}

// The part of an answer that operators set, without what moves by itself.
const settings = (data: unknown): Record<string, unknown> | null =>
  data ? JSON.parse(JSON.stringify(data, (name, value) => PROGRESS.has(name) ? undefined : value)) as Record<string, unknown> : null;
