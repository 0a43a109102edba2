// The orders desk: find orders, and refund all of an event.
import { useSignal } from "@preact/signals";
import { sentence } from "../format";
import { may, whyNot } from "../problem";
import { at, Choice, type Held, Listed, money, Text, usePages } from "./fields";
import type { DrawerProps } from "./drawer";
import { EventRefund } from "./event_refund";
import { OneOrder } from "./order";
import type { AdminOrder } from "../documents";

const STATUSES: [string, string][] = [
  ["", "All"], ["review", "In review"], ["pending", "Pending"], ["confirmed", "Confirmed"], ["partially_refunded", "Partly refunded"],
  ["refunded", "Refunded"], ["cancelled", "Cancelled"], ["expired", "Expired"],
];
const TEXT_MIN = 2;
const SEARCH_AFTER_MS = 250;

export function Orders({ eventId, args }: DrawerProps) {
  const chosen = useSignal<string | null>(args.reference ?? null);
  if (!may("operator")) return <p class="muted">Orders name their buyers. {whyNot("operator")}</p>;
  if (chosen.value) return <OneOrder reference={chosen.value} back={() => { chosen.value = null; }} />;
  return (
    <>
      <Search eventId={eventId} filter={args.filter ?? ""} choose={(reference) => { chosen.value = reference; }} />
      <h3>All orders of this event</h3>
      <EventRefund eventId={eventId} />
    </>
  );
}

function Search({ eventId, filter, choose }: { eventId: string; filter: string; choose: (reference: string) => void }) {
  const status = useSignal(STATUSES.some(([one]) => one === filter) ? filter : "");
  const text = useSignal("");
  const asked = useSignal("");
  const typed: Held<string> = { get value() { return text.value; }, set value(found) {
    text.value = found;
    setTimeout(() => { if (text.value === found) asked.value = found.trim(); }, SEARCH_AFTER_MS);
  } };
  const query = new URLSearchParams({ event_id: eventId, page_size: "20" });
  if (status.value) query.set("status", status.value);
  if (asked.value.length >= TEXT_MIN) query.set("q", asked.value);
  const orders = usePages<AdminOrder>(`/admin/orders?${query}`, "orders");
  return (
    <>
      <form class="two" role="search" onSubmit={(event) => { event.preventDefault(); asked.value = text.value.trim(); }}>
        <Text label="Find" name="search" value={typed} placeholder="reference, e-mail, name or seat" />
        <Choice label="Status" name="status" value={status} options={STATUSES} />
      </form>
      <Listed pages={orders} none={status.value || asked.value ? "No order matches." : "Nobody has ordered yet."} row={(one) => (
        <li key={one.reference} data-order={one.reference}>
          <button type="button" class="rowbutton" onClick={() => choose(one.reference)}>
            <span><b class="mono">{one.reference}</b> <span class={`pill ${one.status === "review" ? "warn" : ""}`}>{sentence(one.status)}</span></span>
            <span class="num">{money(one.total_minor, one.currency)}</span>
            <span class="muted">{one.customer.email ?? one.customer.name ?? "no name"}</span>
            <span class="muted num">{at(one.created_at)}</span>
          </button>
        </li>
      )} />
    </>
  );
}
