// How many are admitted: the rate with what it would mean, and how long until the line obeyed.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, type Problem } from "../api";
import { clockTime, count, rate as perSecond } from "../format";
import { asProblem, ProblemText } from "../problem";
import { Action, type Intent } from "../write";
import { Figure, numberOf, type Held } from "./fields";
import type { DrawerProps } from "./drawer";
import { Obeyed, useObeyed } from "./obeyed";
import { patchRoom, roomPath, useRoom } from "./room_view";
import type { CapacityPlan, RoomView, Vitals } from "../documents";

type Values = Pick<RoomView, "rate_per_s" | "burst" | "max_active">;

const PREVIEW_AFTER_MS = 200;
const SLIDER_LEAST = 100;

export function Rate({ eventId }: DrawerProps) {
  const room = useRoom(eventId);
  const typed = { rate_per_s: useSignal<string | null>(null), burst: useSignal<string | null>(null), max_active: useSignal<string | null>(null) };
  const [obeyed, obeying] = useObeyed();
  const now = room.data.value;
  if (!now) return <ProblemText problem={room.problem.value} />;

  const wanted = (name: keyof Values): number | null => numberOf(typed[name].value ?? String(now[name]));
  const names: (keyof Values)[] = ["rate_per_s", "burst", "max_active"];
  const changed = names.filter((name) => typed[name].value !== null && wanted(name) !== now[name]);
  const wrong = names.some((name) => wanted(name) === null) ? "Each field needs a number."
    : changed.length === 0 ? `In force: ${perSecond(now.rate_per_s)}/s, burst ${count(now.burst)}, at most ${count(now.max_active)} in the shop.` : null;

  const save = async (intent: Intent) => {
    const before = Object.fromEntries(changed.map((name) => [name, room.data.value![name]]));
    const set = (values: object, by: Intent) => obeying(() => patchRoom(room, values, by), rateInForce);
    const after = await set(Object.fromEntries(changed.map((name) => [name, wanted(name)])), intent);
    for (const name of names) typed[name].value = null;
    const back = "rate_per_s" in before ? `Back to ${perSecond(before.rate_per_s as number)}/s` : "Undo";
    return {
      words: `Set: ${perSecond(after.rate_per_s)}/s, burst ${count(after.burst)}, at most ${count(after.max_active)} in the shop.`,
      undo: { label: back, run: (undo: Intent) => set(before, { ...undo, reason: "Taken back in the console" }) },
    };
  };
  const field = (name: keyof Values): Held<string> => ({
    get value() { return typed[name].value ?? String(now[name]); }, set value(text) { typed[name].value = text; },
  });
  const top = Math.max(SLIDER_LEAST, 2 * now.rate_per_s);
  return (
    <>
      <Action label="Set the rate" name="set-rate" of={room} sends={names.map(wanted)} wrong={wrong} send={save}>
        <Figure label="Fans called per second" name="rate_per_s" value={field("rate_per_s")} max={100_000} step="any" slider={top} />
        <div class="two">
          <Figure label="Burst" name="burst" value={field("burst")} min={1} hint="called at once" />
          <Figure label="At most in the shop" name="max_active" value={field("max_active")} />
        </div>
        <Preview eventId={eventId} rate={wanted("rate_per_s")} most={wanted("max_active")} />
      </Action>
      <Obeyed words={obeyed} />
    </>
  );
}

// The rate by which the gatekeeper calls is the wanted one, unless something holds the line back.
const rateInForce = ({ rate }: Vitals, wanted: RoomView) => rate.effective_per_s === wanted.rate_per_s || rate.why !== null;

const LIMITS: Record<string, string> = {
  max_active: ", as fast as places in the shop become free", "nothing moves": ": every place in the shop is taken and none becomes free",
};

// What these values would do to the present line. Nothing is changed by the question.
function Preview({ eventId, rate, most }: { eventId: string; rate: number | null; most: number | null }) {
  const plan = useSignal<CapacityPlan | null>(null);
  const problem = useSignal<Problem | null>(null);
  const asks = !!rate && !!most;
  useEffect(() => {
    if (!asks) { plan.value = null; return; }
    let current = true;
    const timer = setTimeout(async () => {
      try {
        const { data } = await call<CapacityPlan>("POST", `${roomPath(eventId)}/capacity-plan`, { body: { rate_per_s: rate, max_active: most } });
        if (current) { plan.value = data; problem.value = null; }
      } catch (failed) { if (current) problem.value = asProblem(failed); }
    }, PREVIEW_AFTER_MS);
    return () => { current = false; clearTimeout(timer); };
  }, [eventId, rate, most]);
  const found = plan.value;
  if (rate === 0) return <p class="preview">At 0/s nobody is called. Fans may still join the line.</p>;
  if (!found) return <ProblemText problem={problem.value} />;
  const clock = (text: string) => clockTime(Date.parse(text));
  const [earliest, latest] = found.sells_out_between ?? [];
  return (
    <div class="preview" data-preview aria-live="polite">
      <p>{found.waiting === 0 ? found.summary : <>{count(found.waiting)} wait; they would be called at {perSecond(found.calls_per_s)}/s{LIMITS[found.limiting_factor]}.</>}</p>
      {found.waiting > 0 && (
        <dl>
          <div><dt>Line drains at</dt><dd class="num">{found.drains_at ? clock(found.drains_at) : "not foreseeable"}</dd></div>
          <div><dt>Sells out at</dt><dd class="num">{found.sells_out_at ? clock(found.sells_out_at)
            : found.in_vain === 0 ? "not with the present line" : "not foreseeable"}
            {earliest && (!latest || clock(earliest) !== clock(latest)) && <span class="muted"> between {clock(earliest)} and {latest ? clock(latest) : "perhaps never"}</span>}</dd></div>
          <div><dt>Wait in vain</dt><dd class={`num${found.in_vain ? " warn" : ""}`}>{count(found.in_vain)}</dd></div>
        </dl>
      )}
    </div>
  );
}
