// One order: what was bought and paid, all that happened, and what an operator may do about it.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { minorOf } from "../../money";
import { call } from "../api";
import type { AdminOrder, LineView, Timeline } from "../documents";
import { sentence } from "../format";
import { ProblemText } from "../problem";
import { Action, useResource, type Intent, type Resource } from "../write";
import { at, Check, Choice, Figure, money, Text } from "./fields";

const DECISIONS: Record<string, string> = { confirm: "Confirm", refund: "Refund", expire: "Expire" };
// What confirm and refund mean, by the reason why a sold order is in review.
const REASONS: Record<string, [about: string, confirm: string, refund: string]> = {
  "refund-refused": ["The provider refused a refund.", "Keep the sale as it is", "Try the refund of all that is left again"],
  "refunded-outside": ["Part of the money was refunded at the provider itself.", "Accept that, the tickets stay good", "Refund the rest, the tickets are void"],
  disputed: ["The buyer's bank disputes the payment.", "Keep the tickets good", "Void the tickets, and refund what is left"],
  "dispute-lost": ["The dispute is lost, its money is gone.", "Keep the tickets good nevertheless", "Void the tickets"],
  "dispute-won": ["The dispute is won after its tickets were void, and the money is back.", "Keep the money", "Refund it"],
};
const UNSAID = new Set(["at", "kind", "currency", "command_id"]);
const MOMENT = /^\d{4}-\d\d-\d\dT\d\d:/;
const REFRESH_MS = [700, 2500]; // a refund is done by a worker

export function OneOrder({ reference, back }: { reference: string; back: () => void }) {
  const path = `/admin/orders/${encodeURIComponent(reference)}`;
  const read = useResource<Timeline>(`${path}/timeline`);
  const first = useRef<HTMLButtonElement>(null);
  useEffect(() => first.current?.focus(), []);
  const found = read.data.value;
  return (
    <>
      <button type="button" class="button small" ref={first} onClick={back}>‹ All orders</button>
      <ProblemText problem={read.problem.value} />
      {found && <><Facts order={found.order} /><Actions read={read} path={path} /><History found={found} /></>}
    </>
  );
}

function Facts({ order }: { order: AdminOrder }) {
  const sum = (minor: number) => money(minor, order.currency);
  return (
    <>
      <h3><span class="mono">{order.reference}</span> <span class="pill" data-order-status>{sentence(order.status)}</span></h3>
      <dl class="facts num">
        <div><dt>Buyer</dt><dd>{order.customer.name} {order.customer.email && <span class="break">{order.customer.email}</span>}{!order.customer.name && !order.customer.email && "–"}</dd></div>
        <div><dt>Ordered</dt><dd>{at(order.created_at)}</dd></div>
        <div><dt>Total</dt><dd>{sum(order.total_minor)} <span class="muted">charged {sum(order.charged_minor)}</span></dd></div>
        {order.refunded_minor + order.refunding_minor > 0 && (
          <div><dt>Refunded</dt><dd data-refunded>{sum(order.refunded_minor)}{order.refunding_minor > 0 && <span class="muted"> {sum(order.refunding_minor)} on its way</span>}</dd></div>
        )}
        {order.dispute && (
          <div><dt>Dispute</dt><dd data-dispute>{sentence(order.dispute)}{(order.disputed_minor ?? 0) > 0 && <span class="muted"> {sum(order.disputed_minor ?? 0)} withdrawn by the provider</span>}</dd></div>
        )}
        {order.end_reason && <div><dt>{order.status === "review" ? "In review" : "Ended"}</dt><dd>{order.end_reason.replaceAll("_", " ")}</dd></div>}
        {order.lines.map((line, index) => (
          <div key={index}><dt>{line.seat_id ?? line.section_id}{line.type_name && <span class="muted" data-type> {line.type_name}</span>}</dt>
            <dd>{line.quantity} × {sum(line.unit_price_minor)}{line.returned > 0 && <span class="muted"> {line.returned} returned</span>}
              {line.names?.map(({ ticket_id: id, name, void: gone }) => <span class="break" key={id}> {gone ? <s>{name}</s> : name}</span>)}</dd></div>
        ))}
      </dl>
    </>
  );
}

function Actions({ read, path }: { read: Resource<Timeline>; path: string }) {
  const { order } = read.data.value!;
  const post = async (action: string, { key, reason }: Intent, body: object = {}) => {
    const { data } = await call<AdminOrder>("POST", `${path}/${action}`, { body: { ...body, reason }, key });
    await read.read();
    for (const ms of REFRESH_MS) setTimeout(() => void read.read(), ms);
    return data;
  };
  const left = Math.max(0, order.charged_minor - order.refunded_minor - order.refunding_minor - (order.disputed_minor ?? 0));
  return (
    <>
      <Resolve order={order} post={post} />
      <Refund order={order} left={left} post={post} />
      <Rename order={order} post={post} />
      <Action asks idle={order.status !== "pending"} label="Cancel the order" name="cancel" tone="danger" reason="required" sends={order.status}
        send={async (intent) => { await post("cancel", intent); return "Cancelled, as soon as no payment is under way."; }} />
      <Action asks label="Retry now" name="retry" reason="required" about="Does its due step at once."
        send={async (intent) => { await post("retry", intent); return "It is tried again now."; }} />
    </>
  );
}

type Post = (action: string, intent: Intent, body?: object) => Promise<AdminOrder>;

function Refund({ order, left, post }: { order: AdminOrder; left: number; post: Post }) {
  const what = useSignal("all");
  const amount = useSignal("");
  const chosen = useSignal<Record<string, number>>({});
  const onSale = useSignal(false);
  const minor = minorOf(amount.value, order.currency) ?? 0;
  const lines = order.lines.filter((line) => line.quantity > line.returned);
  const named = (line: LineView) => line.seat_id ?? `${line.section_id} ${line.type_id ?? ""}`; // a section has a line for each price type
  const tickets = {
    seats: lines.filter((line) => line.seat_id && chosen.value[named(line)]).map((line) => line.seat_id),
    ga: lines.filter((line) => !line.seat_id && chosen.value[named(line)]).map((line) => ({ section_id: line.section_id, quantity: chosen.value[named(line)], ...(line.type_id && { type_id: line.type_id }) })),
  };
  const body = what.value === "amount" ? { amount_minor: minor }
    : what.value === "tickets" ? { tickets, return_to_sale: onSale.value } : { return_to_sale: onSale.value };
  const wrong = what.value === "amount" && (minor < 1 || minor > left) ? `An amount up to ${money(left, order.currency)}.`
    : what.value === "tickets" && tickets.seats.length + tickets.ga.length === 0 ? "Choose the tickets." : null;
  return (
    <Action asks idle={(left <= 0 && !order.disputed_minor) || order.status === "review"} label="Refund" name="refund" tone="danger" reason="required" sends={body} wrong={wrong}
      send={async (intent) => {
        const after = await post("refund", intent, body);
        const going = after.refunded_minor + after.refunding_minor - order.refunded_minor - order.refunding_minor;
        return `${money(going, order.currency)} ${after.refunding_minor > 0 ? "is on its way back" : "was refunded"}.`;
      }}>
      <Choice label="What" name="what" value={what} options={[["all", `All that is left: ${money(left, order.currency)}`], ["amount", "An amount"], ["tickets", "Some tickets"]]} />
      {what.value === "amount" && <Figure label={`Amount in ${order.currency}`} name="amount" value={amount} step="any" />}
      {what.value === "tickets" && (
        <fieldset class="group"><legend>Tickets</legend>
          {lines.map((line) => {
            const set = (quantity: number) => { chosen.value = { ...chosen.value, [named(line)]: quantity }; };
            return line.seat_id ? (
              <label class="check" key={named(line)}><input type="checkbox" onChange={(event) => set(event.currentTarget.checked ? 1 : 0)} /><span>{line.seat_id} {line.type_name}</span></label>
            ) : (
              <label class="labelled" key={named(line)}>{line.section_id} {line.type_name}, up to {line.quantity - line.returned}
                <input class="field num" type="number" min={0} max={line.quantity - line.returned} value={chosen.value[named(line)] ?? 0}
                  onInput={(event) => set(Number(event.currentTarget.value))} />
              </label>
            );
          })}
        </fieldset>
      )}
      {what.value !== "amount" && <Check label="Put the places on sale again" value={onSale} name="return_to_sale" />}
    </Action>
  );
}

function Rename({ order, post }: { order: AdminOrder; post: Post }) {
  const tickets = order.lines.flatMap((line) => (line.names ?? []).filter((one) => !one.void).map((one) => ({ ...one, place: line.seat_id ?? line.section_id })));
  const chosen = useSignal("");
  const name = useSignal("");
  const ticket = chosen.value || tickets[0]?.ticket_id || "";
  const body = { names: { [ticket]: name.value.trim() } };
  return (
    <Action asks idle={tickets.length === 0} label="Change a name" name="rename" reason="required" sends={body} wrong={name.value.trim() ? null : "Write the new name."}
      about="The ticket and its code stay the same."
      send={async (intent) => { await post("names", intent, body); return "Changed."; }}>
      <Choice label="Ticket" value={{ get value() { return ticket; }, set value(one) { chosen.value = one; } }} name="ticket"
        options={tickets.map((one) => [one.ticket_id, `${one.place}: ${one.name}`])} />
      <Text label="New name" name="new_name" value={name} max={100} required />
    </Action>
  );
}

function Resolve({ order, post }: { order: AdminOrder; post: Post }) {
  const decision = useSignal(order.may_be_resolved_by[0] ?? "");
  const onSale = useSignal(false);
  const body = { decision: decision.value, return_to_sale: decision.value === "refund" && onSale.value };
  const [about, confirm, refund] = (order.confirmed_at && REASONS[order.end_reason ?? ""]) || ["This order waits for a person's decision."];
  const named: Record<string, string | undefined> = { ...DECISIONS, ...(confirm && { confirm, refund }) };
  return (
    <Action asks idle={order.status !== "review" || order.may_be_resolved_by.length === 0} label="Resolve" name="resolve" tone="danger" reason="required" sends={body} about={about}
      send={async (intent) => { await post("resolve", intent, body); return "Decided."; }}>
      <Choice label="Decision" value={decision} options={order.may_be_resolved_by.map((one) => [one, named[one] ?? sentence(one)])} />
      {decision.value === "refund" && <Check label="Put the places on sale again" value={onSale} />}
    </Action>
  );
}

function History({ found }: { found: Timeline }) {
  const said = (name: string, value: unknown): string => typeof value === "number" && name.endsWith("_minor")
    ? money(value, found.order.currency) : typeof value === "string" && MOMENT.test(value) ? at(value) : String(value);
  const facts = (entry: Record<string, unknown>) => Object.entries(entry)
    .filter(([name, value]) => !UNSAID.has(name) && value !== null && value !== "" && typeof value !== "object")
    .map(([name, value]) => `${name.replace("_minor", "").replaceAll("_", " ")} ${said(name, value)}`).join(" · ");
  return (
    <>
      <h3>What happened</h3>
      {!found.complete && <p class="muted">Only the first part is listed.</p>}
      <ol class="rows">{found.timeline.map((entry, index) => (
        <li key={index}><p><b>{sentence(entry.kind)}</b> <span class="muted num">{at(entry.at)}</span></p><p class="muted break">{facts(entry)}</p></li>
      ))}</ol>
    </>
  );
}
