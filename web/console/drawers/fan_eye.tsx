// What a fan at a position of the line reads now, in the words of the fans' own page.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { changeWords, estimateWords, NOT_STARTED } from "../../fans/wait_words.js";
import { call, type Problem } from "../api";
import { count } from "../format";
import { vitals } from "../live";
import { asProblem, ProblemText } from "../problem";
import { numberOf, Text } from "./fields";
import type { DrawerProps } from "./drawer";
import type { FanView } from "../documents";

const EVERY_MS = 2000;

export function FanEye({ eventId }: DrawerProps) {
  const waiting = vitals.value?.line.waiting ?? 0;
  const typed = useSignal("1");
  const found = useSignal<FanView | null>(null);
  const problem = useSignal<Problem | null>(null);
  const position = numberOf(typed.value) || null;
  useEffect(() => {
    if (position === null) return;
    let open = true;
    const read = async () => {
      try {
        const { data } = await call<FanView>("GET", `/console/api/events/${eventId}/fan-view?position=${position}`);
        if (open) [found.value, problem.value] = [data, null];
      } catch (failed) {
        if (open) problem.value = asProblem(failed);
      }
    };
    void read();
    const timer = setInterval(() => void read(), EVERY_MS);
    return () => { open = false; clearInterval(timer); };
  }, [eventId, position]);
  const places: [string, number][] = [["First", 1], ["In the middle", Math.ceil(waiting / 2)], ["Last", waiting]];
  return (
    <>
      <Text label="Position in line" name="position" value={typed} max={10} hint={`${count(waiting)} wait now`} />
      <div class="buttons" role="group" aria-label="Positions">
        {places.map(([name, at]) => (
          <button key={name} type="button" class="button small" disabled={at < 1} onClick={() => { typed.value = String(at); }}>{name}</button>
        ))}
      </div>
      {position === null && <p class="muted">Give a position from 1 on.</p>}
      {found.value && position !== null && <Told view={found.value} />}
      <ProblemText problem={problem.value} />
    </>
  );
}

function Told({ view }: { view: FanView }) {
  const { position_in_queue: position, estimated_wait_low: low, estimated_wait_high: high, estimate_changed: changed } = view;
  const range: [number, number | null] | null = low == null ? null : [low, high ?? null];
  return (
    <figure class="fan-eye told" data-fan-eye aria-live="polite">
      <figcaption class="muted">As the fan's page shows it</figcaption>
      {view.message && <p class="said">{view.message}</p>}
      {view.status === "prequeue" || position === null ? <p>{NOT_STARTED}</p> : (
        <>
          <p class="muted">Your place in line</p>
          <p class="place num" data-place>{count(position)}</p>
          <p data-estimate>{estimateWords({ state: view.state, position, range, changed })}</p>
          {changeWords(changed) && <p class="muted" data-change>{changeWords(changed)}</p>}
        </>
      )}
    </figure>
  );
}
