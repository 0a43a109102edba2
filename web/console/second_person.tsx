// The second person for what cannot be taken back: an operator asks, every screen of the event tells it, another operator
// approves or refuses, and what was approved is sent by the page of who asked, exactly as it was shown.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { approved, call, Problem, SecondPersonNeeded } from "./api";
import { count, duration, sentence } from "./format";
import { approvals, clockMs, session, snapshot, vitals } from "./live";
import type { ApprovalList, ApprovalView } from "./documents";
import { asProblem, may, ProblemText } from "./problem";

const CONTROLS: Record<string, string> = {
  close_room: "close the room: nobody is called any more",
  reset_room: "reset the room: every place and pass of the present line ends",
  change_gate: "change the rules of forward-auth: they say to which sites visitors and their passes are sent",
  refund_event: "refund the whole event: every buyer gets all their money back",
  release_all: "release all holds: fans lose what they hold and have not begun to pay",
  draw_lottery: "draw the lottery: there is one draw, and it ranks all entrants",
  approve_oversell: "approve every oversell: those who bought last lose their tickets and get their money back",
};
const GONE = 404;
const waits = new Set<string>(); // those that a form of this page waits for

const words = (control: string): string => CONTROLS[control] ?? control.replaceAll("_", " ");
const path = (id = ""): string => `/console/api/events/${vitals.value!.event_id}/approvals${id && `/${id}`}`;
const left = (until: number): string => duration(Math.max(0, Math.round((until - clockMs.value) / 1000)));
const isMine = (one: ApprovalView): boolean => one.requested_by === session.value?.name;

// Takes the approval for this page's next request with its key, and puts the entry away.
async function take(id: string): Promise<NonNullable<ApprovalView["call"]>> {
  const { data } = await call<ApprovalList>("GET", path());
  const found = data.approvals.find((one) => one.id === id)?.call;
  if (!found) throw new Problem(GONE, "The approval is gone", "It has expired, or was used already. Ask again.");
  if (found.idempotency_key) approved.set(found.idempotency_key, found);
  await putAway(id);
  return found;
}

async function putAway(id: string): Promise<void> {
  try { await call("DELETE", path(id)); } catch { /* it expires */ }
  approvals.value = approvals.value.filter((one) => one.id !== id);
}

interface Asking { needed: SecondPersonNeeded; again: () => void; leave: () => void }

// In the form that was refused: asks, waits, and goes on when somebody approves.
export function AskSecondPerson({ needed, again, leave }: Asking) {
  const [id, problem, busy] = [useSignal(""), useSignal<Problem | null>(null), useSignal(false)];
  const expiresMs = useRef(0);
  const box = useRef<HTMLDivElement>(null);
  const row = approvals.value.find((one) => one.id === id.value);
  const isLate = id.value !== "" && clockMs.value > (row?.expires_ms ?? expiresMs.current);
  const attempt = async (run: () => Promise<void>) => {
    if (busy.value) return;
    busy.value = true;
    problem.value = null;
    try { await run(); } catch (failed) { problem.value = asProblem(failed); }
    busy.value = false;
  };
  const ask = () => attempt(async () => {
    const { control, body, key, etag } = needed.refused;
    const { data } = await call<ApprovalView>("POST", path(), { body: { control, body, idempotency_key: key, if_match: etag } });
    expiresMs.current = data.expires_ms;
    waits.add(data.id);
    id.value = data.id;
  });
  const stop = () => {
    if (id.value) void putAway(id.value);
    leave();
  };
  useEffect(() => {
    if (row?.status === "approved") void attempt(async () => { await take(row.id); again(); });
  }, [row?.status]);
  useEffect(() => {
    box.current?.querySelector("button")?.focus();
    return () => { waits.delete(id.value); };
  }, []);
  const status = isLate ? "late" : row?.status ?? (id.value ? "pending" : "");
  return (
    <div ref={box} class="outcome warn" data-second-person={status} role="group" aria-label="A second person">
      <div role="status">
        {status === "" && <><b>This needs a second person</b><p>Another operator must agree to {words(needed.refused.control)}.</p></>}
        {status === "pending" && <><b>Waiting for a second person</b>
          <p>Every console of this event shows what you ask. It goes on by itself once another operator approves.</p></>}
        {status === "approved" && <b>{row!.decided_by} has approved: sending…</b>}
        {status === "refused" && <><b>{row!.decided_by} has refused</b><p>Nothing was changed.</p></>}
        {status === "late" && <><b>Nobody decided in time</b><p>Nothing was changed. You may ask again.</p></>}
      </div>
      {status === "pending" && <p class="muted num">{left(row?.expires_ms ?? expiresMs.current)} left</p>}
      <ProblemText problem={problem.value} />
      <div class="buttons">
        {status === "" && <button type="button" class="button primary" disabled={busy.value} onClick={() => void ask()}>Ask a second person</button>}
        <button type="button" class="button" onClick={stop}>{status === "" ? "Cancel" : status === "pending" ? "Withdraw" : "Close"}</button>
      </div>
    </div>
  );
}

// What waits for this operator, and what this operator waits for, unless an open form shows it.
export const shownApprovals = (): ApprovalView[] => approvals.value.filter((one) =>
  one.expires_ms > clockMs.value && (isMine(one) ? !waits.has(one.id) : one.status === "pending"));

export function ApprovalNotice({ one }: { one: ApprovalView }) {
  const [problem, busy] = [useSignal<Problem | null>(null), useSignal(false)];
  const mine = isMine(one);
  const attempt = (run: () => Promise<unknown>) => async () => {
    if (busy.value) return;
    busy.value = true;
    problem.value = null;
    try { await run(); } catch (failed) { problem.value = asProblem(failed); }
    busy.value = false;
  };
  const decide = (decision: string) => attempt(async () => {
    const { data } = await call<ApprovalView>("POST", path(`${one.id}/${decision}`));
    approvals.value = approvals.value.map((other) => other.id === one.id ? data : other);
  });
  const send = attempt(async () => {
    const found = await take(one.id);
    await call("POST", found.path, { key: found.idempotency_key ?? undefined, granted: found });
  });
  const button = (label: string, run: () => Promise<void>, style = "button small") =>
    <button type="button" class={style} disabled={busy.value} onClick={() => void run()}>{label}</button>;
  return (
    <div class="notice warn" data-approval={one.status} data-control={one.control}>
      <b>{mine ? MINE[one.status](one) : `${one.requested_by} asks to`} {words(one.control)}
        <span class="muted num">{snapshot.value?.name} · {left(one.expires_ms)} left</span></b>
      <p><q>{one.reason}</q>{Object.entries(one.figures).map(([name, value]) => <span key={name}> · {sentence(name)}: <b>{shortly(value)}</b></span>)}</p>
      {mine && one.status === "pending" && button("Withdraw", attempt(() => putAway(one.id)))}
      {mine && one.status === "approved" && button("Do it now", send, "button small danger")}
      {mine && one.status === "refused" && button("Put away", attempt(() => putAway(one.id)))}
      {!mine && may(one.role) && <>{button("Approve", decide("approve"), "button small danger")}{button("Refuse", decide("refuse"))}</>}
      {!mine && !may(one.role) && <span class="muted">An {one.role} decides.</span>}
      <ProblemText problem={problem.value} />
    </div>
  );
}

const MINE: Record<ApprovalView["status"], (one: ApprovalView) => string> = {
  pending: () => "You ask to",
  approved: (one) => `${one.decided_by} agrees that you`,
  refused: (one) => `${one.decided_by} refuses that you`,
};

const shortly = (value: unknown): string =>
  value === true ? "yes" : value === false ? "no" : typeof value === "number" ? count(value) : typeof value === "string" ? value : JSON.stringify(value);
