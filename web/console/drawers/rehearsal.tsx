// A rehearsal: simulated fans buy a copy of the event. Started, watched and removed here; the event itself sells nothing.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "../api";
import { go } from "../address";
import { count, duration } from "../format";
import { vitals } from "../live";
import type { RehearsalResult, RehearsalView as Found } from "../documents";
import { ProblemText } from "../problem";
import { Action, useResource, type Intent } from "../write";
import { Figure, numberOf } from "./fields";
import type { DrawerProps } from "./drawer";

const EVERY_MS = 1000, FANS_MAX = 20_000, NONE_YET = 404;
const STATES: Record<Found["state"], string> = {
  running: "runs", done: "is over", failed: "failed", stopped: "was stopped", lost: "broke off: the console that ran it is gone",
};
const STAGES: [string, string][] = [["joined", "Joined"], ["called", "Called"], ["held", "Held"], ["bought", "Bought"]];

export function Rehearsal({ eventId }: DrawerProps) {
  const path = `/console/api/events/${eventId}/rehearsal`;
  const last = useResource<Found>(path);
  const fans = useSignal("2000");
  const problem = last.problem.value;
  const found = problem?.status === NONE_YET ? null : last.data.value;
  const runs = found?.state === "running";
  useEffect(() => {
    if (!runs) return;
    const timer = setInterval(() => void last.read(), EVERY_MS);
    return () => clearInterval(timer);
  }, [runs]);
  const wanted = numberOf(fans.value);
  const fits = wanted !== null && Number.isInteger(wanted) && wanted >= 1 && wanted <= FANS_MAX;
  const start = async ({ reason }: Intent) => {
    last.take(await call<Found>("POST", path, { body: { fans: wanted, reason } }));
    return "Started.";
  };
  const remove = async () => {
    await call("DELETE", path);
    last.data.value = null;
    return "Removed: its copy is closed, and no list shows it.";
  };
  return (
    <>
      {problem && problem.status !== NONE_YET && <ProblemText problem={problem} />}
      {found && <Told found={found} />}
      <Action idle={runs} label="Start the rehearsal" name="start-rehearsal" reason="required" needs="admin" sends={fits && wanted}
        wrong={fits ? null : `A whole number from 1 to ${count(FANS_MAX)}.`} send={start}
        about={<>
          A copy of this event opens at once, with the same places, prices, limits and rate. Simulated fans join, wait, choose and pay
          with the sandbox; then the copy is closed. Fans see it in no list, nobody gets mail, and nothing of this event is sold.
          {vitals.value?.room.state === "open" && <b> This event is open: a rehearsal works on the same machines as its fans.</b>}
        </>}>
        <Figure label="Simulated fans" name="fans" value={fans} min={1} max={FANS_MAX} />
      </Action>
      <Action asks idle={!found} label={runs ? "Stop and remove" : "Remove"} name="remove-rehearsal" tone={runs ? "danger" : "primary"}
        reason="none" needs="admin" about="Its copy stays closed, with what was sold in it; its result is forgotten." send={remove} />
    </>
  );
}

function Told({ found }: { found: Found }) {
  const { copy_id: copy, result } = found;
  const broken = result ? [...result.failures, ...result.broken] : [];
  return (
    <section class="preview" data-rehearsal={found.state} aria-label="The last rehearsal">
      <p>The rehearsal with {count(found.fans)} fans <b>{STATES[found.state]}</b>.
        <span class="muted"> By {found.started_by}: {found.reason}</span></p>
      {found.detail && <p role="alert" data-detail>{found.detail}</p>}
      {copy && <p><a href={`/console/events/${copy}`} onClick={go} data-copy>Watch its copy, {copy}</a></p>}
      {found.left_out.length > 0 && <details><summary>Left out of the copy</summary><ul>{found.left_out.map((words) => <li key={words}>{words}</li>)}</ul></details>}
      {result ? <Outcome result={result} /> : (
        <dl>{STAGES.map(([stage, words]) => (
          <div key={stage}><dt>{words}</dt><dd class="num" data-stage={stage}>{count(found.progress[stage] ?? 0)} <span class="muted">of {count(found.fans)}</span></dd></div>
        ))}</dl>
      )}
      {result && <p class={`outcome ${broken.length ? "bad" : "good"}`} data-verdict={broken.length ? "broken" : "held"}>
        {broken.length ? broken.join("; ") : "Nothing was sold twice, nobody was overtaken, and every request was answered."}</p>}
    </section>
  );
}

function Outcome({ result }: { result: RehearsalResult }) {
  const rows: [string, string, string][] = [
    ["sold", "Sold", `${count(result.tickets_sold)} of ${count(result.capacity)} tickets`],
    ["bought", "Bought", `${count(result.bought)} of ${count(result.joined)} who joined`],
    ["without", "Without", `${count(result.empty_handed)} found nothing left, ${count(result.gave_up)} gave up`],
    ["waits", "Waits", `half up to ${duration(result.wait_p50_s)}, 95 % up to ${duration(result.wait_p95_s)}`],
    ["proof", "Proof", `${count(result.oversold)} oversold, ${count(result.duplicate_numbers)} duplicates, ${count(result.inversions)} inversions`],
    ["invariants", "Invariants", `${count(result.invariants - result.broken.length)} of ${count(result.invariants)} hold`],
    ["took", "Took", duration(result.seconds)],
  ];
  return <dl>{rows.map(([name, words, value]) => <div key={name}><dt>{words}</dt><dd class="num" data-result={name}>{value}</dd></div>)}</dl>;
}
