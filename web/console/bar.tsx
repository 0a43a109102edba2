// The bar: which event, its state, the time, how old the figures are, the proof, and the controls.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { lost } from "./attention";
import { ControlBar } from "./drawers";
import { clockTime, count, duration, longDate, STATES, type RoomState } from "./format";
import { helpOpen, keysOn } from "./keys";
import { clockMs, lastHeardMs, replayed, session, shown, snapshot } from "./live";
import { go, signOut } from "./address";
import { replayProblem, startReplay } from "./replay";

const PROOF_OLD_MS = 180_000;
const tick = signal(Date.now());

export function Bar({ eventId }: { eventId: string }) {
  const head = snapshot.value;
  return (
    <header class="bar">
      <div class="row">
        <a class="back" href="/console/" onClick={go} aria-label="All events">‹</a>
        <h1>{head?.name ?? eventId}</h1>
        {!replayed.value && <StatePill state={shown.value?.room.state ?? null} />}
        <span class="muted venue">{head?.venue}{head?.starts_at && ` · ${longDate(head.starts_at)}`}</span>
        <span class="spacer" />
        <Age />
        <span class="clock num">{clockTime(clockMs.value)}</span>
        <nav class="tools" aria-label="Screen">
          <button type="button" class="button small" onClick={() => void startReplay(eventId)} disabled={!!replayed.value}>Replay</button>
          <a class="button small" href={`/console/wall/${eventId}`} onClick={go}>Wall</a>
          <button type="button" class="button small" onClick={() => { helpOpen.value = true; }}
            aria-label={`Help and keys, ${keysOn.value ? "on" : "off"}`}>?</button>
          <button type="button" class="button small" onClick={() => void signOut()} title={`Signed in as ${session.value?.name}, ${session.value?.role}`}>Sign out</button>
        </nav>
      </div>
      <div class="row">
        <Proof />
        <span class="spacer" />
        {!replayed.value && <ControlBar eventId={eventId} />}
      </div>
      {replayProblem.value && <p class="notice warn" role="alert">{replayProblem.value}</p>}
    </header>
  );
}

const TONES: Record<RoomState, string> = {
  draft: "", prequeue: "info", open: "good", paused: "warn", draining: "warn", last_chance: "warn", sold_out: "info", closed: "",
};
export function StatePill({ state }: { state: RoomState | null }) {
  return <span class={`pill ${state ? TONES[state] : ""}`} data-state={state}>{state ? STATES[state] : "State unknown"}</span>;
}

export function Age() {
  useEffect(() => {
    const timer = setInterval(() => { tick.value = Date.now(); }, 500);
    return () => clearInterval(timer);
  }, []);
  if (replayed.value) return <span class="age stale">replayed figures</span>;
  const late = lost();
  if (late) return <span class="age lost" data-age>connection lost, figures from {late} ago</span>;
  if (!lastHeardMs.value) return <span class="age stale" data-age>connecting…</span>;
  const age = Math.max(0, tick.value - lastHeardMs.value) / 1000;
  return <span class="age num" data-age><i class="beat" aria-hidden="true" />figures {age.toFixed(1)} s old</span>;
}

export function Proof() {
  const proof = shown.value?.proof;
  const found: [string, number | null | undefined][] = [
    ["oversold", proof?.oversold], ["duplicates", proof?.duplicates],
    ["inversions", proof?.inversions], ["charged twice", proof?.charged_twice],
  ];
  const bad = found.some(([, violations]) => !!violations);
  const proven = proof?.at_ms != null && clockMs.value - proof.at_ms < PROOF_OLD_MS && found.every(([, violations]) => violations === 0);
  return (
    <p class={`proof num${bad ? " bad" : proven ? " good" : ""}`} data-proof={bad ? "broken" : proven ? "held" : "unknown"}>
      <i class={bad ? "cross" : proven ? "tick" : "dot"} aria-hidden="true" />
      {found.map(([name, violations]) => (
        <span key={name} class={violations ? "bad" : ""}>{name} <b>{count(violations)}</b></span>
      ))}
      <span class="muted">{proof?.at_ms ? `proven ${duration(Math.max(0, Math.round((clockMs.value - proof.at_ms) / 1000)))} ago`
        : replayed.value ? "not kept for a replay" : "not proven yet"}</span>
    </p>
  );
}
