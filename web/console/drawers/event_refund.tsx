// Refund of every order of an event: begun, watched, paused and resumed.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "../api";
import type { EventRefundProgress } from "../documents";
import { count, rate } from "../format";
import { snapshot } from "../live";
import { ProblemText } from "../problem";
import { Action, useResource, type Intent } from "../write";
import { Check, Figure, money, numberOf } from "./fields";

const EVERY_MS = 2000;
const NONE_YET = 404;

export function EventRefund({ eventId }: { eventId: string }) {
  const path = `/admin/orders/events/${eventId}/refund`;
  const progress = useResource<EventRefundProgress>(path);
  const [perSecond, onSale] = [useSignal("10"), useSignal(false)];
  const found = progress.problem.value ? null : progress.data.value;
  const runs = found?.status === "running";
  useEffect(() => {
    if (!runs) return;
    const timer = setInterval(() => void progress.read(), EVERY_MS);
    return () => clearInterval(timer);
  }, [runs]);
  const post = (place: string, words: string, body: object = {}) => async ({ key, reason }: Intent) => {
    progress.take(await call<EventRefundProgress>("POST", `${path}${place}`, { body: { ...body, reason }, key }));
    return words;
  };
  const problem = progress.problem.value;
  const currency = snapshot.value?.currency ?? "EUR";
  const wanted = { rate_per_s: numberOf(perSecond.value), return_to_sale: onSale.value };
  const stoppable = runs || found?.status === "paused";
  return (
    <>
      {problem && problem.status !== NONE_YET && <ProblemText problem={problem} />}
      {found && (
        <div class="preview" data-event-refund={found.status}>
          <p>Refund of the event: <b>{found.status}</b> at {rate(found.rate_per_s)}/s, {count(found.asked)} requested, {count(found.cancelled)} unpaid cancelled.
            <span class="muted"> By {found.asked_by}: {found.reason}</span></p>
          <dl>{Object.entries(found.refunds).map(([status, sum]) => (
            <div key={status}><dt>{status}</dt><dd class="num">{count(sum.count)} <span class="muted">{money(sum.amount_minor, currency)}</span></dd></div>
          ))}</dl>
        </div>
      )}
      <Action asks idle={!runs} label="Pause the refund" name="pause-refund" reason="required" send={post("/pause", "Paused: no further refund is requested.")} />
      <Action asks idle={found?.status !== "paused"} label="Resume the refund" name="resume-refund" reason="required" sends={wanted.rate_per_s} wrong={wanted.rate_per_s ? null : "Give the rate."}
        send={post("/resume", "Resumed.", { rate_per_s: wanted.rate_per_s })}>
        <Figure label="Refunds per second" name="rate_per_s" value={perSecond} min={1} max={200} />
      </Action>
      <Action asks idle={stoppable} label="Refund the whole event" name="refund-all" tone="danger" reason="required" typed={eventId} sends={wanted}
        about="Every buyer gets all their money back; unpaid orders are cancelled." wrong={wanted.rate_per_s ? null : "Give the rate."}
        send={post("", "Begun: it goes on by itself.", wanted)}>
        <Figure label="Refunds per second" name="rate_per_s" value={perSecond} min={1} max={200} />
        <Check label="Put the places on sale again" value={onSale} name="return_to_sale" />
      </Action>
    </>
  );
}
