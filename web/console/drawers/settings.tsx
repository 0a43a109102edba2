// The waiting room's settings beside the rate: lanes, pace, times, limits, and who may join.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { count } from "../format";
import { ProblemText } from "../problem";
import { Action, type Resource } from "../write";
import { Check, Choice, Figure, type Held, Moment, momentOf, numberOf, timeOf } from "./fields";
import type { DrawerProps } from "./drawer";
import { patchRoom, useRoom } from "./room_view";
import type { RoomView } from "../documents";

type Values = Record<string, unknown>;
type Room = Resource<RoomView>;

export function Settings({ eventId }: DrawerProps) {
  const room = useRoom(eventId);
  if (!room.data.value) return <ProblemText problem={room.problem.value} />;
  return <><Lanes room={room} /><Pace room={room} /><Schedule room={room} /><Limits room={room} /><Entry room={room} /></>;
}

// What was typed, by field, over what the room has now; nothing is typed after it was saved.
function useTyped<T extends string | boolean>(): { over: (name: string, now: T) => Held<T>; forget: () => void } {
  const typed = useSignal<Record<string, T>>({});
  return {
    over: (name, now) => ({
      get value() { return typed.value[name] ?? now; }, set value(found: T) { typed.value = { ...typed.value, [name]: found }; },
    }),
    forget: () => { typed.value = {}; },
  };
}

// One group of settings that is saved together; `wanted` are the values to save, null while a field is wrong.
function Group({ room, name, label, about, wanted, saved, children }: {
  room: Room; name: string; label: string; about: string; wanted: Values | null; saved: () => void; children: ComponentChildren;
}) {
  const now = room.data.value as unknown as Values;
  const same = !!wanted && Object.entries(wanted).every(([field, value]) => alike(value, field === "lanes" ? lanesOf(room) : now[field]));
  return (
    <Action asks label={label} verb="Save" name={name} of={room} about={about} sends={wanted} wrong={!wanted ? "Each field needs a number that is possible." : same ? "Nothing is changed yet." : null}
      send={async (intent) => {
        const before = Object.fromEntries(Object.keys(wanted!).map((field) => [field, field === "lanes" ? lanesOf(room) : now[field]]));
        await patchRoom(room, wanted!, intent);
        saved();
        return { words: "Saved: it holds from now on.", undo: { label: "Undo", run: (undo) => patchRoom(room, before, { ...undo, reason: "Taken back in the console" }) } };
      }}>
      {children}
    </Action>
  );
}

const alike = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other)
  || (typeof one === "string" && typeof other === "string" && Date.parse(one) === Date.parse(other));

// The lanes as the room's configuration has them, without their progress.
const lanesOf = (room: Room) => Object.values(room.data.value!.lanes).map(({ lane, name, weight, opens_at, code_required, claim, max_line }) =>
  ({ lane, name, weight, opens_at, code_required, claim, max_line }));

function Lanes({ room }: { room: Room }) {
  const typed = useTyped<string>();
  const lanes = lanesOf(room);
  const weight = (lane: number) => typed.over(String(lane), String(lanes.find((one) => one.lane === lane)!.weight));
  const weights = lanes.map((one) => numberOf(weight(one.lane).value));
  const right = weights.every((one) => one !== null && Number.isInteger(one) && one >= 1 && one <= 1000);
  const all = weights.reduce<number>((sum, one) => sum + (one ?? 0), 0);
  if (lanes.length === 1) return <p class="muted" data-one-lane>One line for everybody. The event file names further lanes, such as one for members.</p>;
  return (
    <Group room={room} name="lanes" label="Share of the lanes" about="How calls are shared while every lane has somebody waiting." saved={typed.forget}
      wanted={right ? { lanes: lanes.map((one, index) => ({ ...one, weight: weights[index] })) } : null}>
      {lanes.map((one, index) => (
        <Figure key={one.lane} label={one.name} name={`weight_${one.lane}`} value={weight(one.lane)} min={1} max={1000}
          hint={right ? `${Math.round(weights[index]! / all * 100)} % of the calls` : ""} />
      ))}
    </Group>
  );
}

const SWITCH: [string, string][] = [["off", "Off"], ["observe", "Observe: only say what it would do"], ["on", "On"]];

function Pace({ room }: { room: Room }) {
  const { pace } = room.data.value!;
  const typed = useTyped<string>();
  const [guard, tune] = [typed.over("guard", pace.guard), typed.over("autotune", pace.autotune)];
  const [least, most] = [typed.over("rate_min", String(pace.rate_min ?? "")), typed.over("rate_max", String(pace.rate_max ?? ""))];
  const [from, to] = [numberOf(least.value), numberOf(most.value)];
  const right = tune.value === "off" || (from !== null && to !== null && from > 0 && from <= to);
  return (
    <Group room={room} name="pace" label="Automatic pace" about="What may slow the line down, or move its rate, without you." saved={typed.forget}
      wanted={right ? { pace: { ...pace, guard: guard.value, autotune: tune.value, rate_min: from, rate_max: to } } : null}>
      <Choice label="Slow down while stock or orders are overloaded" name="guard" value={guard} options={SWITCH} />
      <Choice label="Find the rate by itself" name="autotune" value={tune} options={SWITCH} />
      {tune.value !== "off" && (
        <div class="two"><Figure label="Not below, per second" name="rate_min" value={least} step="any" /><Figure label="Not above, per second" name="rate_max" value={most} step="any" /></div>
      )}
    </Group>
  );
}

function Schedule({ room }: { room: Room }) {
  const now = room.data.value!;
  const typed = useTyped<string>();
  const fields = { queue_opens_at: "The line opens", sale_starts_at: "The sale starts", sale_ends_at: "The sale ends" } as const;
  const names = Object.keys(fields) as (keyof typeof fields)[];
  const held = (name: keyof typeof fields) => typed.over(name, momentOf(now[name]));
  // A time of the room that nobody touched keeps its seconds.
  const wanted = Object.fromEntries(names.map((name) => [name, held(name).value === momentOf(now[name]) ? now[name] : timeOf(held(name).value)]));
  return (
    <Group room={room} name="schedule" label="Times of the sale" about="By the clock of this device. Empty: no such time." wanted={wanted} saved={typed.forget}>
      {names.map((name) => <Moment key={name} label={fields[name]} name={name} value={held(name)} />)}
    </Group>
  );
}

function Limits({ room }: { room: Room }) {
  const now = room.data.value!;
  const [typed, ticked] = [useTyped<string>(), useTyped<boolean>()];
  const [session, claim] = [typed.over("session_s", String(now.session_s)), typed.over("claim_window_s", String(now.claim_window_s))];
  const most = typed.over("max_line", String(now.max_line ?? ""));
  const stock = ticked.over("stock_coupling", now.stock_coupling);
  const [shop_s, claim_s] = [numberOf(session.value), numberOf(claim.value)];
  const right = shop_s !== null && claim_s !== null && shop_s >= 10 && claim_s >= 5 && (most.value.trim() === "" || (numberOf(most.value) ?? 0) >= 1);
  return (
    <Group room={room} name="limits" label="Time and places for each fan" about={`Now ${count(now.session_s)} s in the shop, ${count(now.claim_window_s)} s to come in.`}
      saved={() => { typed.forget(); ticked.forget(); }}
      wanted={right ? { session_s: shop_s, claim_window_s: claim_s, max_line: numberOf(most.value), stock_coupling: stock.value } : null}>
      <div class="two">
        <Figure label="Seconds in the shop" name="session_s" value={session} min={10} max={86_400} />
        <Figure label="Seconds to come in once called" name="claim_window_s" value={claim} min={5} max={3600} />
      </div>
      <Figure label="Places in the line at most" name="max_line" value={most} min={1} optional hint="(empty: no limit)" />
      <Check label="Call no more fans than there are free places for" name="stock_coupling" value={stock} />
    </Group>
  );
}

const PROOF: [string, string][] = [
  ["off", "Never"], ["by_address", "From addresses that bring many at once"], ["by_pressure", "While many join"], ["on", "From everybody"],
];

function Entry({ room }: { room: Room }) {
  const { entry, friction, rollout_percent: share } = room.data.value!;
  const [typed, ticked] = [useTyped<string>(), useTyped<boolean>()];
  const [proof, percent] = [typed.over("proof_of_work", friction.proof_of_work), typed.over("rollout_percent", String(share))];
  const signedIn = ticked.over("signed_in_only", entry.signed_in_only);
  const part = numberOf(percent.value);
  return (
    <Group room={room} name="entry" label="Who may join, and how" about="Against robots, and for sales to members only." saved={() => { typed.forget(); ticked.forget(); }}
      wanted={part !== null && part >= 0 && part <= 100 ? {
        entry: { ...entry, signed_in_only: signedIn.value }, friction: { ...friction, proof_of_work: proof.value }, rollout_percent: part,
      } : null}>
      <Check label="Only fans who are signed in" name="signed_in_only" value={signedIn} />
      <Choice label="Ask the device for a proof of work" name="proof_of_work" value={proof} options={PROOF} />
      <Figure label="Per cent of the fans who go through the line" name="rollout_percent" value={percent} max={100} step="any" />
    </Group>
  );
}
