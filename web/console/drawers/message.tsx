// What everybody in the line reads, shown as fans see it before it is sent.
import { useSignal } from "@preact/signals";
import { ProblemText } from "../problem";
import { Action, type Intent } from "../write";
import { Text } from "./fields";
import type { DrawerProps } from "./drawer";
import { actOnRoom, useRoom } from "./room_view";

const MESSAGE_MAX = 500;

export function Message({ eventId }: DrawerProps) {
  const room = useRoom(eventId);
  const text = useSignal("");
  const now = room.data.value;
  if (!now) return <ProblemText problem={room.problem.value} />;
  const set = (message: string | null) => async (intent: Intent) => {
    const before = room.data.value!.message;
    await actOnRoom(room, "message", intent, { message });
    text.value = "";
    return {
      words: message === null ? "The message is gone from every page." : "Every fan in the line reads it now.",
      undo: {
        label: before === null ? "Take it away" : "Back to the message before",
        run: (undo: Intent) => actOnRoom(room, "message", { ...undo, reason: "Taken back in the console" }, { message: before }),
      },
    };
  };
  const wanted = text.value.trim();
  return (
    <>
      <p>{now.message ? <>Shown now: <q data-message-now>{now.message}</q></> : <span class="muted">No message is shown now.</span>}</p>
      <Action label="Show to the line" name="set-message" of={room} sends={wanted} send={set(wanted)} wrong={wanted ? null : "Write a message first."}>
        <Text label="Message" value={text} lines={4} max={MESSAGE_MAX} hint={`${text.value.length} of ${MESSAGE_MAX}`} />
        {wanted && (
          <figure class="fan-eye" data-fan-eye>
            <figcaption class="muted">As fans see it, above their place in the line</figcaption>
            <p>{wanted}</p>
          </figure>
        )}
      </Action>
      <Action asks idle={!now.message} label="Clear the message" name="clear-message" of={room} sends={now.message} send={set(null)} />
    </>
  );
}
