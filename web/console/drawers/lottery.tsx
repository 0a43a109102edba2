// The lottery's draw, if this event has one.
import { useSignal } from "@preact/signals";
import { call } from "../api";
import type { PublishedLottery } from "../documents";
import { count } from "../format";
import { ProblemText } from "../problem";
import { Action, useResource } from "../write";
import { at, Text } from "./fields";
import type { DrawerProps } from "./drawer";
import { useRoom } from "./room_view";

export function Lottery({ eventId }: DrawerProps) {
  const room = useRoom(eventId);
  const now = room.data.value;
  if (!now) return <ProblemText problem={room.problem.value} />;
  if (now.ordering !== "lottery") return <p class="muted">This event has no lottery: fans are called in the order they came.</p>;
  return <Draw eventId={eventId} />;
}

function Draw({ eventId }: { eventId: string }) {
  const lottery = useResource<PublishedLottery>(`/events/${eventId}/queue/lottery`);
  const value = useSignal("");
  const found = lottery.data.value;
  if (!found) return <ProblemText problem={lottery.problem.value} />;
  const entrants = Object.values(found.entrants).reduce((all, one) => all + one.taken, 0);
  return (
    <>
      <dl class="facts">
        <div><dt>Stage</dt><dd>{found.stage.replaceAll("_", " ")}</dd></div>
        <div><dt>Entry closes</dt><dd>{at(found.closed_at ?? found.rules.entry_closes_at)}</dd></div>
        {entrants > 0 && <div><dt>Entrants</dt><dd class="num">{count(entrants)}</dd></div>}
        <div><dt>Commitment</dt><dd class="mono break">{found.commitment}</dd></div>
        {found.drawn_at && <div><dt>Drawn</dt><dd>{at(found.drawn_at)} with <q>{found.public_value}</q></dd></div>}
      </dl>
      <Action idle={!!found.drawn_at} label="Draw" name="draw" tone="danger" reason="required" typed={eventId} sends={value.value.trim()} wrong={value.value.trim() ? null : "Give the public value as it was published."}
        about="There is one draw: it reveals the seed and ranks all entrants."
        send={async ({ key, reason }) => {
          await call("POST", `/admin/queue/events/${eventId}/lottery/draw`, { body: { public_value: value.value.trim(), reason }, key });
          await lottery.read();
          return "Drawn: fans are called by their rank.";
        }}>
        <Text label="Public value" name="public_value" value={value} max={500} />
      </Action>
    </>
  );
}
