import "./page.js";
import assert from "node:assert/strict";
import test from "node:test";
import { money, moment, ownTime, remaining, seat, wait, waitBetween } from "../fans/format.js";
import { limitWords, refusalWords } from "../fans/limits.js";
import { fill } from "../fans/words.js";
import { changeWords, estimateWords } from "../fans/wait_words.js";

test("money has the digits of its currency", () => {
  assert.deepEqual([money(123456, "EUR"), money(1234, "JPY"), money(1234, "KWD")].map((text) => text.replaceAll("\u00a0", " ")), ["€1,234.56", "JP¥1,234", "KWD 1.234"]);
});

test("a countdown never shows less time than there is", () => {
  assert.deepEqual([246.2, 3729, 0.1, -5].map(remaining), ["4:07", "1:02:09", "0:01", "0:00"]);
  assert.match(remaining(3 * 86400 + 4 * 3600 + 59), /^3 days 4/);
});

test("a wait is rounded up, and a range that reads the same is one value", () => {
  assert.equal(wait(61), "about 2 minutes");
  assert.equal(waitBetween(480, 840), "8 to 14 minutes");
  assert.equal(waitBetween(61, 119), "1 to 2 minutes");
  assert.equal(waitBetween(30, 60), wait(60));
  assert.match(waitBetween(23 * 3600, null), /more than 23 hours/);
  assert.match(wait(40 * 3600), /day/);
});

test("times are the venue's, and the fan's own only where they differ", () => {
  assert.match(moment("2030-03-05T10:00:00Z", "Asia/Tokyo"), /5 March 2030.*19:00 Japan Standard Time/);
  assert.match(moment("2030-03-05T10:00:00Z", "Nowhere/Unknown"), /10:00/, "an unknown zone is shown as UTC");
  assert.equal(ownTime("2030-03-05T10:00:00Z", Intl.DateTimeFormat().resolvedOptions().timeZone), "");
  assert.match(ownTime("2030-03-05T10:00:00Z", "Pacific/Kiritimati"), /2030/);
});

test("a seat is called by its section, row and number", () => {
  const sections = new Map([["A", { name: "Stalls" }]]);
  assert.equal(seat("A-AA-2b", sections), "Stalls, row AA, seat 2b");
  assert.equal(seat("B-1-1", sections), "B, row 1, seat 1");
});

test("texts take values and plural forms", () => {
  const tickets = { one: "{n} ticket", other: "{n} tickets" };
  assert.deepEqual([1, 2, 1234].map((n) => fill(tickets, { n })), ["1 ticket", "2 tickets", "1,234 tickets"]);
});

test("limits are told once each, and a refusal names the one that it exceeds", () => {
  const limits = { tickets_per_order: 6, tickets_per_customer: 6, tour_tickets_per_customer: 3 };
  assert.equal(limitWords(limits), "up to 6 tickets each · 3 tickets per customer for the whole tour");
  assert.equal(limitWords({ tickets_per_order: 4, tickets_per_customer: 0, tour_tickets_per_customer: 0 }), "up to 4 tickets each");
  const members = { limit: "tour_tickets_per_customer", allowed: 3, used: 2 };
  const told = refusalWords({ slug: "limit-exceeded", message: "", members });
  assert.equal(told, "More than is allowed: 3 tickets per customer for the whole tour. 2 are taken already.");
  assert.equal(refusalWords({ slug: "another", message: "No.", members: {} }), "No.");
});

test("a refusal for want of tickets says where how many are left", () => {
  const sections = new Map([["A", { name: "Block A" }], ["B", { name: "Block B" }]]);
  const told = (available) => refusalWords({ slug: "sold-out", message: "None.", members: { available } }, sections);
  assert.equal(told({ A: 2, B: 0 }), "Only 2 of these tickets are left in Block A.");
  assert.equal(told({ A: 0, B: 0 }), "None.");
  assert.match(told({ A: 0 }), /Block A/);
});

test("a waiting fan reads how long, or why nobody can say", () => {
  const ask = (facts) => estimateWords({ state: "open", position: 5, range: null, changed: null, ...facts });
  assert.match(ask({ range: [480, 840] }), /8 to 14 minutes/);
  assert.notEqual(ask({ state: "paused" }), ask({}));
  assert.notEqual(ask({ changed: { reason: "room-full" } }), ask({}));
  const at = (ageMs) => changeWords({ reason: "throttled", at: new Date(Date.now() - ageMs).toISOString() });
  assert.deepEqual([at(1_000) !== "", at(11 * 60_000)], [true, ""]);
});
