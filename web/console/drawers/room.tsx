// The waiting room's state, and what an operator does to the line by hand.
import { useSignal } from "@preact/signals";
import { call } from "../api";
import { count, STATES } from "../format";
import { vitals } from "../live";
import type { RoomState } from "../types";
import { Action, ProblemText, type Intent } from "../write";
import { Figure, numberOf } from "./fields";
import type { DrawerProps } from ".";
import { actOnRoom, roomPath, useRoom } from "./room_view";

export function Room({ eventId }: DrawerProps) {
  const room = useRoom(eventId);
  const admitted = useSignal("50");
  const now = room.data.value;
  if (!now) return <ProblemText problem={room.problem.value} />;
  const act = (action: string, words: string, back?: [string, string]) => async (intent: Intent) => {
    await actOnRoom(room, action, intent);
    const undo = back && {
      label: back[1], run: (undone: Intent) => actOnRoom(room, back[0], { ...undone, reason: "Taken back in the console" }),
    };
    return { words, undo };
  };
  const state = now.state as RoomState;
  const common = { of: room, sends: state };
  const number = numberOf(admitted.value);
  return (
    <>
      <p>The room is <b data-room-state>{STATES[state] ?? state}</b>.
        <span class="muted"> {count(vitals.value?.line.waiting)} wait, {count(vitals.value?.room.active)} are in the shop.</span></p>
      {state === "open" && (
        <Action {...common} key="pause" label="Pause" tone="danger" send={act("pause", "Paused.", ["resume", "Resume"])}
          about="Nobody more is called. Fans keep their places and may still join." />
      )}
      {state === "paused" && (
        <Action {...common} key="resume" label="Resume" send={act("resume", "Resumed.", ["pause", "Pause again"])}
          about="Fans are called again, at the set rate." />
      )}
      {state !== "open" && state !== "paused" && (
        <Action {...common} key="open" label="Open" send={act("open", "Opened.")} about="Fans may join, and are called at the set rate." />
      )}
      <h3>The line</h3>
      <Action asks of={room} sends={number} label="Admit fans now" name="admit" about="Beyond the rate, never beyond the shop's places or the stock."
        wrong={number === null || number < 1 || number > 2000 || !Number.isInteger(number) ? "A whole number from 1 to 2,000." : null}
        send={async ({ key, reason }) => {
          const { data } = await call<{ called: number; asked: number }>("POST", `${roomPath(eventId)}/admit`, { body: { count: number, reason }, key });
          return `Called ${count(data.called)} of ${count(data.asked)}.`;
        }}>
        <Figure label="How many" name="count" value={admitted} min={1} max={2000} />
      </Action>
      {state === "open" && (
        <Action {...common} asks label="Drain" send={act("drain", "Draining: nobody new may join.", ["open", "Open again"])}
          about="Nobody new may join; fans in line are still called." />
      )}
      <Action {...common} asks label="Rebuild" send={act("rebuild", "Rebuilt: the rate ramps up again within 30 s.")}
        about="Makes the line's fast store again from the database. Places and order stay." />
      <h3>Not to be taken back</h3>
      {state !== "closed" && (
        <Action {...common} asks label="Close" tone="danger" reason="required" typed={eventId} send={act("close", "Closed.")}
          about="Ends the sale: nobody is called any more." />
      )}
      <Action {...common} asks label="Reset" tone="danger" needs="admin" reason="required" typed={eventId} send={act("reset", "A new line has begun.")}
        about="Starts a new line: every place and pass of the present line ends." />
    </>
  );
}
