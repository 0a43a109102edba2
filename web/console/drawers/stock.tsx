// Places by section and allotment: block, unblock, move, resize, open; and release of all holds.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { call } from "../api";
import type { AllotmentReport, HoldsReleased, PlacesChange, ReservationReleased, StockChanged, StockReport } from "../documents";
import { count } from "../format";
import { ProblemText } from "../problem";
import { Action, useResource, type Intent, type Resource } from "../write";
import { at, Check, Choice, Figure, Moment, money, numberOf, Text, timeOf, wordsOf } from "./fields";
import type { DrawerProps } from "./drawer";

const path = (eventId: string) => `/admin/inventory/events/${eventId}`;

// Places that not everybody can buy.
const apart = ({ blocked, kept_aside, reserved }: StockReport["total"]): number => blocked + kept_aside + reserved;

// Changes the stock, if nobody else changed it since it was read. `places`: how many went on sale or out of it, the
// standing ones, which the answer does not count, too.
async function change(stock: Resource<StockReport>, method: "POST" | "PUT", place: string, body: object, { key, reason }: Intent): Promise<{ changed: boolean; places: number }> {
  const { event_id, version } = stock.data.value!;
  const before = apart(stock.data.value!.total);
  const { data } = await call<StockChanged>(method, `${path(event_id)}/${place}`, { body: { ...body, reason, version }, key });
  await stock.read();
  return { changed: data.changed, places: Math.abs(apart(stock.data.value!.total) - before) };
}

export function Stock({ eventId, args }: DrawerProps) {
  const stock = useResource<StockReport>(`${path(eventId)}/stock`);
  const found = stock.data.value;
  if (!found) return <ProblemText problem={stock.problem.value} />;
  return (
    <>
      <ProblemText problem={stock.problem.value} />
      <div class="scroll" tabIndex={0} role="region" aria-label="Places by section">
        <table class="num">
          <thead><tr><th scope="col">Section</th><th scope="col">Free</th><th scope="col">By code</th><th scope="col">Held</th><th scope="col">Sold</th><th scope="col">Blocked</th><th scope="col">Aside</th><th scope="col">All</th></tr></thead>
          <tbody>
            {[...found.sections, { section_id: "All", ...found.total }].map((one) => (
              <tr key={one.section_id} data-stock={one.section_id}>
                <th scope="row">{one.section_id}</th>
                {[one.available, one.reserved, one.held, one.sold, one.blocked, one.kept_aside, one.capacity].map((places, index) => <td key={index} class="num">{count(places)}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="muted">Sold for {money(found.total.revenue_minor, found.currency)}. <button type="button" class="button small" onClick={() => void stock.read()}>Read again</button></p>
      <Traits stock={stock} />
      <Block stock={stock} section={args.section} />
      <Resize stock={stock} section={args.section} />
      <h3>Allotments</h3>
      {found.allotments.length === 0 && <p class="muted">None: every place is on sale.</p>}
      {found.allotments.length > 0 && <ul class="rows">{found.allotments.map((one) => <AllotmentRow key={one.allotment_id} stock={stock} allotment={one} />)}</ul>}
      <NewAllotment stock={stock} />
      <Move stock={stock} />
      <h3>Holds</h3>
      <ReleaseOne stock={stock} />
      <Action asks label="Release all holds" name="release-all" tone="danger" reason="required" typed={eventId} sends={found.version}
        about={`Fans lose what they hold and have not begun to pay: up to ${count(found.total.held)} places.`}
        send={async ({ key, reason }) => {
          const { data } = await call<HoldsReleased>("POST", `${path(eventId)}/release-all`, { body: { reason }, key });
          await stock.read();
          return `Released ${count(data.released)} ${data.released === 1 ? "hold" : "holds"}.`;
        }} />
    </>
  );
}

const ACCESSIBLE = ["wheelchair", "companion"] as const;

// Places that the event file gives traits, by section and in all, and the release of those for wheelchairs.
function Traits({ stock }: { stock: Resource<StockReport> }) {
  const found = stock.data.value!;
  const all = found.traits ?? {};
  const rows = [...found.sections, { section_id: "All", traits: all }].flatMap((one) => Object.entries(one.traits ?? {}).map(([trait, places]) => ({ section: one.section_id, trait, places })));
  if (!rows.length) return null;
  const from = found.accessible_released_at ?? found.accessible_release_at;
  return (
    <>
      <h3>Places with traits</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label="Places with traits">
        <table class="num">
          <thead><tr><th scope="col">Places</th><th scope="col">Section</th><th scope="col">Free</th><th scope="col">Held</th><th scope="col">Sold</th><th scope="col">All</th></tr></thead>
          <tbody>
            {rows.map(({ section, trait, places }) => (
              <tr key={`${section} ${trait}`} data-trait={`${section} ${trait}`}>
                <th scope="row">{trait.replaceAll("_", " ")}</th>
                <td>{section}</td>
                {[places.available, places.held, places.sold, places.capacity].map((n, index) => <td key={index} class="num">{count(n)}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {ACCESSIBLE.some((trait) => all[trait]) && (
        <>
          <p class="muted">Who does not ask for wheelchair or companion places is offered them {from ? `from ${at(from)} on` : "once they are released"}, last of all.</p>
          <Action asks label="Offer wheelchair and companion places to everybody" verb="Release" idle={!!found.accessible_released_at} name="release-accessible" reason="required" of={stock} sends={found.version}
            about="Best available offers them when no other places are left. This cannot be taken back."
            send={async (intent) => {
              const done = await change(stock, "POST", "accessible/release", {}, intent);
              return done.changed ? "They are offered to everybody." : "They were released before.";
            }} />
        </>
      )}
    </>
  );
}

function sections(stock: Resource<StockReport>): [string, string][] {
  return stock.data.value!.sections.map((one) => [one.section_id, one.section_id]);
}

// Places as an operator names them: which fields there are, and what they name, null while they name nothing.
function usePlaces(stock: Resource<StockReport>, section?: string): { named: () => Partial<PlacesChange> | null; fields: ComponentChildren } {
  const { sections: all } = stock.data.value!;
  const kind = useSignal("seats");
  const where = useSignal(section ?? all[0]?.section_id ?? "");
  const seats = useSignal("");
  const [first, last, quantity] = [useSignal("1"), useSignal("1"), useSignal("1")];
  const named = () => {
    const [from, to] = [first, last].map((one) => one.value.trim());
    const number = numberOf(quantity.value);
    if (kind.value === "seats") return wordsOf(seats.value).length ? { seats: wordsOf(seats.value) } : null;
    if (kind.value === "rows") return from && to ? { rows: [{ section_id: where.value, rows: [from, to] as [string, string] }] } : null;
    return number ? { ga: [{ section_id: where.value, quantity: number }] } : null;
  };
  const fields = (
    <>
      <Choice label="Which" name="which" value={kind} options={[["seats", "Seats by name"], ["rows", "Rows of a section"], ["ga", "A number of standing places"]]} />
      {kind.value === "seats" && <Text label="Seats" name="seats" value={seats} lines={2} max={5000} hint="such as A-1-1, A-1-2" />}
      {kind.value !== "seats" && <Choice label="Section" name="section" value={where} options={sections(stock)} />}
      {kind.value === "rows" && <div class="two"><Text label="From row" name="first_row" value={first} max={8} hint="as it stands on the row" /><Text label="To row" name="last_row" value={last} max={8} /></div>}
      {kind.value === "ga" && <Figure label="How many places" name="quantity" value={quantity} min={1} />}
    </>
  );
  return { named, fields };
}

function Block({ stock, section }: { stock: Resource<StockReport>; section?: string | undefined }) {
  const { named, fields } = usePlaces(stock, section);
  const free = useSignal(false);
  const wanted = named();
  const verb = free.value ? "unblock" : "block";
  const send = async (intent: Intent) => {
    const done = await change(stock, "POST", `seats/${verb}`, wanted!, intent);
    const other = verb === "block" ? "unblock" : "block";
    return done.changed
      ? {
        words: `${count(done.places)} ${done.places === 1 ? "place" : "places"} ${verb}ed.`,
        undo: { label: other === "block" ? "Block again" : "Unblock again", run: (undo: Intent) => change(stock, "POST", `seats/${other}`, wanted!, { ...undo, reason: "Taken back in the console" }) },
      } : "Nothing had to change.";
  };
  return (
    <Action asks label="Block or unblock places" verb={free.value ? "Unblock" : "Block"} name="block" of={stock} sends={[wanted, verb]} wrong={wanted ? null : "Name the places."} send={send}
      about="Blocked places are not on sale.">
      <Check label="Unblock: put them on sale again" value={free} name="unblock" />
      {fields}
    </Action>
  );
}

const KINDS: [string, string][] = [["house", "House: guests, press"], ["channel", "Another seller"], ["presale", "Presale"], ["buffer", "Buffer: serves who was sold too much first"]];
const ID_MAX = 64;
const RESERVATION = /^[0-9a-f]{32}$/;

function NewAllotment({ stock }: { stock: Resource<StockReport> }) {
  const { named, fields } = usePlaces(stock);
  const [name, kind, opens] = [useSignal(""), useSignal("house"), useSignal("")];
  const [codes, lanes] = [useSignal(""), useSignal("")];
  const id = name.value.trim().toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, ID_MAX);
  const there = stock.data.value!.allotments.some((one) => one.allotment_id === id);
  const places = named();
  const body = {
    ...places, name: name.value.trim(), kind: kind.value, opens_at: timeOf(opens.value),
    codes: codes.value.split("\n").map((one) => one.trim()).filter(Boolean), lanes: wordsOf(lanes.value).map(Number),
  };
  return (
    <Action asks label="Keep places aside" name="new-allotment" of={stock} sends={[id, body]} about="They are not on sale until the allotment opens, but for fans with one of its codes or of its lanes."
      wrong={!id ? "Give it a name." : there ? "There is one of this name already: open it, or choose another name." : places ? null : "Name the places."}
      send={async (intent) => {
        const done = await change(stock, "PUT", `allotments/${id}`, body, intent);
        name.value = opens.value = codes.value = lanes.value = "";
        return `${count(done.places)} ${done.places === 1 ? "place is" : "places are"} kept aside.`;
      }}>
      <Text label="Name" name="name" value={name} />
      <Choice label="For whom" name="kind" value={kind} options={KINDS} />
      {fields}
      <Text label="Codes that buy them" name="codes" value={codes} lines={2} max={20000} hint="one a line; empty: nobody buys them yet" />
      <Text label="Lanes that buy them" name="lanes" value={lanes} max={60} hint="such as 1, 2" />
      <Moment label="Goes on sale at" name="opens_at" value={opens} hint="(empty: by hand)" />
    </Action>
  );
}

const GENERAL = "";

function Move({ stock }: { stock: Resource<StockReport> }) {
  const { named, fields } = usePlaces(stock);
  const waiting = stock.data.value!.allotments.filter((one) => !one.opened_at);
  const [from, to] = [useSignal(GENERAL), useSignal(waiting[0]?.allotment_id ?? GENERAL)];
  const ways: [string, string][] = [[GENERAL, "General sale"], ...waiting.map((one): [string, string] => [one.allotment_id, one.name])];
  const places = named();
  const moved = (source: string, target: string, intent: Intent) =>
    change(stock, "POST", "stock/move", { ...places!, from_allotment: source || null, to_allotment: target || null }, intent);
  return (
    <Action asks label="Move places" name="move" of={stock} sends={[places, from.value, to.value]} about="Places that are held or sold stay where they are: then nothing moves."
      wrong={!waiting.length ? "There is no allotment that waits." : from.value === to.value ? "Choose two different channels." : places ? null : "Name the places."}
      send={async (intent) => {
        const [source, target] = [from.value, to.value];
        await moved(source, target, intent);
        return { words: "The places are moved.", undo: { label: "Move back", run: (undo) => moved(target, source, { ...undo, reason: "Taken back in the console" }) } };
      }}>
      <Choice label="From" name="source" value={from} options={ways} />
      <Choice label="To" name="target" value={to} options={ways} />
      {fields}
    </Action>
  );
}

function ReleaseOne({ stock }: { stock: Resource<StockReport> }) {
  const id = useSignal("");
  const wanted = id.value.trim().replaceAll("-", "");
  return (
    <Action asks label="Release one hold" name="release-one" tone="danger" reason="required" sends={wanted}
      wrong={!wanted ? "Give the reservation." : RESERVATION.test(wanted) ? null : "That is no reservation: it has 32 digits and letters from a to f."}
      about="The fan loses these places, unless a payment is under way."
      send={async ({ key, reason }) => {
        const { data } = await call<ReservationReleased>("POST", `/admin/inventory/reservations/${wanted}/release`, { body: { reason }, key });
        id.value = "";
        await stock.read();
        return `The reservation is ${data.status.replaceAll("_", " ")}.`;
      }}>
      <Text label="Reservation" name="reservation" value={id} max={40} hint="its id, as the shop's system or the log names it" />
    </Action>
  );
}

function Resize({ stock, section }: { stock: Resource<StockReport>; section?: string | undefined }) {
  const where = useSignal(section ?? stock.data.value!.sections[0]?.section_id ?? "");
  const capacity = useSignal("");
  const now = stock.data.value!.sections.find((one) => one.section_id === where.value);
  const wanted = numberOf(capacity.value);
  const resize = (places: number, intent: Intent) => change(stock, "POST", `sections/${where.value}/resize`, { capacity: places }, intent);
  return (
    <Action asks label="Resize a standing section" name="resize" of={stock} sends={[where.value, wanted]} about="Adds or takes places that are not sold."
      wrong={wanted === null ? "Give the new capacity." : wanted === now?.capacity ? "That is its capacity now." : null}
      send={async (intent) => {
        const before = now!.capacity;
        await resize(wanted!, intent);
        return { words: `${where.value} has ${count(wanted)} places.`, undo: { label: `Back to ${count(before)}`, run: (undo) => resize(before, { ...undo, reason: "Taken back in the console" }) } };
      }}>
      <Choice label="Section" name="section" value={where} options={sections(stock)} />
      <Figure label="Capacity" name="capacity" value={capacity} hint={`now ${count(now?.capacity)}`} />
    </Action>
  );
}

function AllotmentRow({ stock, allotment }: { stock: Resource<StockReport>; allotment: AllotmentReport }) {
  const byCode = allotment.codes.length + allotment.lanes.length > 0;
  const left = byCode ? `${count(allotment.available)} left, ${count(allotment.held)} held, ${count(allotment.sold)} sold by ${allotment.codes.length ? "code" : "lane"}`
    : `${count(allotment.kept_aside)} places aside`;
  return (
    <li>
      <p><b>{allotment.name}</b> <span class="muted">{allotment.kind} · {allotment.opened_at ? `opened ${at(allotment.opened_at)}${byCode ? ` · ${count(allotment.sold)} sold before` : ""}`
        : `${left} · ${allotment.opens_at ? `opens ${at(allotment.opens_at)}` : "opens by hand"}`}</span></p>
      <Action asks label="Open" idle={!!allotment.opened_at} name={`open-${allotment.allotment_id}`} reason="required" of={stock} sends={allotment.allotment_id} about="Puts its places on sale."
        send={async (intent) => {
          const done = await change(stock, "POST", `allotments/${allotment.allotment_id}/open`, {}, intent);
          return `${count(done.places)} places are on sale.`;
        }} />
    </li>
  );
}
