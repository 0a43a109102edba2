// The seats of the selection, each with the choice of its price type.
import { byId, element, show } from "../dom.js";
import { Choice } from "./choice.js";

export class SeatTypes {
  #choices = new Map();

  constructor(types) {
    this.types = types;
    this.node = element("ul", { id: "basket-seats", class: "type-choices", "aria-label": texts.type_seats });
    byId("basket-list").before(this.node);
    types.addEventListener("change", () => this.update());
    this.update();
  }

  update() {
    const { seats } = this.types.basket;
    for (const [id, { node }] of this.#choices) {
      if (seats.has(id)) continue;
      node.remove();
      this.#choices.delete(id);
    }
    for (const id of seats.keys()) {
      const choice = this.#choices.get(id) ?? this.#add(id);
      choice.typeId = seats.get(id).type_id ?? this.types.usual.type_id;
      choice.update();
    }
    show(this.node, seats.size > 0);
  }

  #add(id) {
    const { types } = this;
    const [sectionId] = id.split("-");
    const chosen = (type, minor) => {
      const price = type === types.usual ? {} : { type_id: type.type_id, type_minor: minor };
      types.basket.setType(id, price);
    };
    const options = () => types.atSeat(types.basket.seats.get(id));
    const choice = new Choice({ types, ticket: id, place: types.place(sectionId, id), options, chosen });
    this.#choices.set(id, choice);
    this.node.append(choice.node);
    return choice;
  }
}
