// The waiting room's state, and what an operator does to the line by hand.
import { useSignal } from "@preact/signals";
import { call } from "../api";
import { count, type RoomState, STATES } from "../format";
import { vitals } from "../live";
import type { AdmitResult } from "../documents";
import { ProblemText } from "../problem";
import { Action, type Done, type Intent } from "../write";
import { Figure, numberOf } from "./fields";
import type { DrawerProps } from "./drawer";
import { Obeyed, useObeyed } from "./obeyed";
import { actOnRoom, roomPath, useRoom } from "./room_view";

type Act = (action: string, words: string, back?: [string, string]) => (intent: Intent) => Promise<Done>;

// What an operator does next, by the room's state.
function next(state: RoomState, act: Act) {
  if (state === "open") return {
    label: "Pause", tone: "danger" as const, send: act("pause", "Paused. Resume calls fans again."),
    about: "Nobody more is called. Fans keep their places and may still join.",
  };
  if (state === "paused") return {
    label: "Resume", send: act("resume", "Resumed."), about: "Fans are called again, at the set rate.",
  };
  return { label: "Open", send: act("open", "Opened."), about: "Fans may join, and are called at the set rate." };
}

export function Room({ eventId }: DrawerProps) {
  const room = useRoom(eventId);
  const admitted = useSignal("50");
  const [obeyed, obeying] = useObeyed();
  const now = room.data.value;
  if (!now) return <ProblemText problem={room.problem.value} />;
  const act: Act = (action, words, back) => async (intent: Intent) => {
    const send = (name: string, by: Intent) => obeying(() => actOnRoom(room, name, by));
    await send(action, intent);
    const undo = back && { label: back[1], run: (undone: Intent) => send(back[0], { ...undone, reason: "Taken back in the console" }) };
    return { words, undo };
  };
  const state: RoomState = now.state;
  const common = { of: room, sends: state };
  const number = numberOf(admitted.value);
  return (
    <>
      <p>The room is <b data-room-state>{STATES[state] ?? state}</b>.
        <span class="muted"> {count(vitals.value?.line.waiting)} wait, {count(vitals.value?.room.active)} are in the shop.</span></p>
      <Action {...common} {...next(state, act)} name="state" />
      <Obeyed words={obeyed} />
      <h3>The line</h3>
      <Action asks of={room} sends={number} label="Admit fans now" name="admit" reason="required" about="Beyond the rate, never beyond the shop's places or the stock."
        wrong={number === null || number < 1 || number > 2000 || !Number.isInteger(number) ? "A whole number from 1 to 2,000." : null}
        send={async ({ key, reason }) => {
          const { data } = await call<AdmitResult>("POST", `${roomPath(eventId)}/admit`, { body: { count: number, reason }, key });
          return `Called ${count(data.called)} of ${count(data.asked)}.`;
        }}>
        <Figure label="How many" name="count" value={admitted} min={1} max={2000} />
      </Action>
      <Action {...common} asks label="Drain" idle={state !== "open" && state !== "paused"} send={act("drain", "Draining: nobody new may join.", ["open", "Open again"])}
        about="Nobody new may join; fans in line are still called." />
      <Action {...common} asks label="Rebuild" send={act("rebuild", "Rebuilt: the rate ramps up again within 30 s.")}
        about="Makes the line's fast store again from the database. Places and order stay." />
      <h3>Not to be taken back</h3>
      <Action {...common} asks label="Close" idle={state === "closed"} tone="danger" reason="required" typed={eventId} send={act("close", "Closed.")}
        about="Ends the sale: nobody is called any more." />
      <Action {...common} asks label="Reset" tone="danger" needs="admin" reason="required" typed={eventId} send={act("reset", "A new line has begun.")}
        about="Starts a new line: every place and pass of the present line ends." />
    </>
  );
}
