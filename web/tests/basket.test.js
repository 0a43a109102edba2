import "./page.js";
import assert from "node:assert/strict";
import test from "node:test";
import { Basket } from "../fans/basket.js";

const seat = (n) => ({ seat_id: `A-1-${n}`, price_minor: 5000 });
const floor = { section_id: "GA1", name: "Floor", price_minor: 3000 };

test("seats and tickets count together up to the limit", () => {
  const basket = new Basket(3);
  assert.ok(basket.toggle(seat(1)));
  basket.setQuantity(floor, 9);
  assert.deepEqual([basket.quantity("GA1"), basket.count, basket.full], [2, 3, true]);
  assert.equal(basket.toggle(seat(2)), false, "it is full");
  assert.ok(basket.toggle(seat(1)), "a seat can be put back at the limit");
  assert.equal(basket.count, 2);
});

test("the wish names what is picked and nothing else", () => {
  const basket = new Basket(6);
  assert.deepEqual(basket.wish, {});
  basket.toggle(seat(1));
  basket.setQuantity(floor, 2);
  assert.deepEqual(basket.wish, { seats: ["A-1-1"], ga: [{ section_id: "GA1", quantity: 2 }] });
  assert.deepEqual(basket.lines, [[5000, 1], [3000, 2]]);
  basket.drop(["A-1-1"]);
  basket.setQuantity(floor, 0);
  assert.deepEqual([basket.wish, basket.count], [{}, 0]);
});

test("each change has a new idempotency key, and says so", () => {
  const basket = new Basket(6);
  const keys = new Set([basket.key]);
  let changes = 0;
  basket.addEventListener("change", () => (changes += 1));
  for (const change of [() => basket.toggle(seat(1)), () => basket.setQuantity(floor, 1), () => basket.clear()]) {
    change();
    keys.add(basket.key);
  }
  assert.deepEqual([keys.size, changes], [4, 3]);
});

test("seats and tickets have price types, and the usual one is not named", () => {
  const basket = new Basket(6);
  basket.toggle(seat(1));
  basket.toggle(seat(2));
  basket.setType("A-1-1", { type_id: "child", type_minor: 2500 });
  basket.setQuantity(floor, 1);
  basket.setQuantity({ ...floor, type_id: "child", type_minor: 1500 }, 2);
  basket.code = "FRIENDS";
  assert.deepEqual(basket.wish, {
    seats: ["A-1-1", "A-1-2"],
    types: { "A-1-1": "child" },
    ga: [{ section_id: "GA1", quantity: 1 }, { section_id: "GA1", quantity: 2, type_id: "child" }],
    code: "FRIENDS",
  });
  assert.deepEqual(basket.lines, [[2500, 1, "child"], [5000, 1], [3000, 1], [1500, 2, "child"]]);
  assert.deepEqual([basket.quantity("GA1"), basket.quantity("GA1", "child"), basket.count], [1, 2, 5]);
  basket.setType("A-1-1", {});
  assert.equal(basket.wish.types, undefined);
});
