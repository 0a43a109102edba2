// The hall of an event: its map for fans who look or choose, the states of its seats, and the picture of what is held.
// It is loaded when somebody has a place, or asks for it.
import { ask } from "../api.js";
import { byId, element, show, styled, write } from "../dom.js";
import { levelOf as priceLevelOf, priceOfRow, priceTiers } from "../price_tiers.js";
import { seatFacts } from "../seat_words.js";
import { filterControl, legendOf, traitsOf } from "../traits.js";
import { Geometry } from "./geometry.js";
import { Picture } from "./picture.js";
import { Reserved } from "./reserved.js";
import { SeatMap } from "./seat_map.js";
import { SeatStates } from "./seat_states.js";

/** Loads what the map needs; null for an event without one. */
export async function openHall(parts) {
  const { event_id: eventId, map_hash: hash } = parts.fact;
  const map = ask("GET", `/events/${encodeURIComponent(eventId)}/map?v=${hash}`, { patience: 3 });
  const [answer] = await Promise.all([map, styled(SEATS_STYLE), styled(HALL_STYLE)]);
  return new Hall({ ...parts, eventId: encodeURIComponent(eventId), geometry: new Geometry(answer) });
}

class Hall {
  /** `choosing()` follows states and picks seats, once the fan may choose. */
  constructor({ fact, eventId, geometry, stock, basket, prices, filter, feed, choosing }) {
    Object.assign(this, { fact, geometry, stock, basket, prices, filter, choosing });
    this.sections = new Map(fact.sections.map((section) => [section.section_id, section]));
    this.tiers = priceTiers(fact.sections);
    prices.learn([...this.tiers.keys()]).catch(() => {});
    this.states = new SeatStates({ eventId, geometry, feed });
    this.reserved = new Reserved({ fact, eventId, stock, basket, states: this.states });
    this.map = new SeatMap({
      geometry, stock, prices, filter, states: this.states,
      tierOf: (section, row) => this.tiers.get(priceOfRow(this.sections.get(section.id), row)),
      factsOf: (seat) => this.factsOf(seat),
      own: (seat) => this.#own.has(seat),
      picked: (seat) => choosing().picked(this.seat(seat)),
      standing: (id) => this.#toLine(id),
      moved: () => this.#moved(),
    });
    this.picture = new Picture({ geometry, stock });
    this.#build();
    this.states.addEventListener("change", ({ detail }) => this.map.repaint(detail));
    this.states.addEventListener("stale", () => this.#retire());
    basket.addEventListener("change", () => this.#basketChanged());
    prices.addEventListener("change", () => this.#legend());
  }

  #own = new Set();

  /** The step of the fan's way: to look, to choose, to see what is held, or nothing. */
  enter(step, reservation) {
    const inside = step === "choosing";
    show(this.node, step !== "held" && step !== "ended");
    byId("journey").toggleAttribute("data-hall", !this.node.hidden);
    this.map.allow(inside);
    show("hall-list", inside);
    show("hall-hint", inside);
    show("seats-map", inside);
    this.#moved();
    for (const part of [this.states, this.reserved]) {
      if (inside) part.watch();
      else part.rest();
    }
    this.choosing()?.follow(inside ? this.states : null);
    show(this.picture.node, step === "held");
    if (step === "held" && reservation) this.picture.render(reservation);
  }

  seat(n) {
    const { section, row, number, nth, id } = this.geometry.nameOf(n);
    const price = priceOfRow(this.sections.get(section.id), nth);
    return { seat_id: id, row, label: number, nth, ...this.states.stateOf(n), price_minor: price, traits: this.geometry.traitsOf(n) };
  }

  /** A seat in words: section, row, number, price, state. */
  factsOf(n) {
    const { row, label, nth, status, kept, price_minor: minor, seat_id: id, traits } = this.seat(n);
    const section = this.sections.get(id.split("-")[0]);
    const level = priceLevelOf(section, nth)?.name;
    const price = [level, this.prices.one(minor)].filter(Boolean).join(" ");
    return `${section.name}: ${seatFacts({ row, label, traits, kept, status: this.#own.has(n) ? "yours" : status }, price)}`;
  }

  #build() {
    const list = element("button", { type: "button", class: "plain", id: "hall-list" }, texts.hall_to_list);
    list.addEventListener("click", () => this.#toList());
    const map = element("button", { type: "button", class: "plain", id: "seats-map" }, texts.hall_to_map);
    map.addEventListener("click", () => this.#toMap());
    byId("seats-back").before(map);
    const title = element("h2", { id: "hall-title", tabindex: "-1" }, texts.hall_title);
    const level = (left, text) => element("li", {}, element("span", { class: "hall-swatch", "data-left": left, "aria-hidden": "true" }), text);
    this.legendNode = element("ul", { class: "legend prices", id: "hall-prices", "aria-label": texts.prices });
    this.node = element(
      "section",
      { class: "card hall-card", id: "hall", "aria-labelledby": "hall-title" },
      element("div", { class: "seat-head" }, title, list),
      element("p", { class: "small", id: "hall-hint" }, texts.hall_hint),
      this.reserved.node,
      filterControl(this.filter, this.fact.sections),
      this.map.node,
      element("ul", { class: "legend", id: "hall-levels", "aria-label": texts.legend },
        level("many", texts.hall_many), level("some", texts.hall_some), level("few", texts.hall_few), level("none", texts.hall_none)),
      element("ul", { class: "legend", id: "hall-traits", "aria-label": texts.traits }, ...legendOf(traitsOf(this.fact.sections))),
      this.legendNode,
    );
    byId("stock").before(this.node);
    byId("held-tickets").after(this.picture.node);
    this.#legend();
    this.map.overview.update();
  }

  #legend() {
    const entries = [...this.tiers].map(([minor, { tier, mark }]) =>
      element("li", {}, element("span", { class: "seat", "data-status": "available", "data-tier": tier, "data-mark": mark, "aria-hidden": "true" }), this.prices.one(minor)));
    const state = (attributes, text) => element("li", {}, element("span", { class: "seat", "aria-hidden": "true", ...attributes }), text);
    const kept = { "data-status": "available", "data-kept": true };
    const mayBuy = this.fact.code_opens_places || this.fact.lane_opens_places;
    this.legendNode.replaceChildren(
      ...entries,
      ...(mayBuy ? [state(kept, texts.legend_kept)] : []),
      state({ "aria-selected": "true" }, texts.legend_yours),
      state({ "data-status": "reserved" }, texts.legend_basket),
      state({ "data-status": "sold" }, texts.legend_sold),
    );
  }

  #basketChanged() {
    const before = this.#own;
    this.#own = new Set([...this.basket.seats.keys()].map((id) => this.geometry.seatOf(id)));
    this.map.repaint([...before, ...this.#own].filter((seat) => before.has(seat) !== this.#own.has(seat)));
  }

  /** The words and legends that fit what is seen. */
  #moved() {
    const near = this.map.near;
    const section = this.sections.get(near?.section?.id);
    const hint = near ? (near.large ? texts.hall_pick : texts.hall_nearer) : texts.hall_hint;
    write("hall-hint", section ? `${section.name}: ${hint}` : hint);
    show("hall-levels", !near);
    show("hall-prices", Boolean(near));
    this.states.focusOn(this.map.seen.map(({ id }) => id));
  }

  /** The list is the map's equal: the seats of the section in the middle, or all sections. */
  #toList() {
    const section = this.map.near?.section;
    if (section?.seats) this.choosing().open(section.id);
    else this.#toLine(this.fact.sections[0].section_id, "start");
  }

  /** To a section's line in the list. */
  #toLine(sectionId, block = "center") {
    const line = byId(`section-${sectionId}`);
    line.scrollIntoView({ block });
    (line.querySelector(".step:last-of-type") ?? line.querySelector("button")).focus({ preventScroll: true });
  }

  #toMap() {
    const id = this.choosing().openId;
    this.choosing().close();
    this.map.open(id);
  }

  /** The hall has other seats by now: the list shows them, page by page. */
  #retire() {
    this.enter("ended");
    this.enter = () => {};
  }
}
