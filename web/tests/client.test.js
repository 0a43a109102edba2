import { answerWith } from "./page.js";
import assert from "node:assert/strict";
import test, { mock } from "node:test";
import { Client, Fan, Problem, Stream } from "../fans/onsale.ts";
import { Prices } from "../fans/price.js";

const BUSY = { type: "/problems/unavailable", title: "Busy.", status: 503, retry: 0.001 };

test("a busy server is asked again with the same key, as often as patience allows", async () => {
  const asked = answerWith((_, nth) => (nth < 3 ? BUSY : { done: true }));
  const answer = await new Client("http://suite/").ask("POST", "/orders", { body: {}, key: "a-key" });
  assert.deepEqual([answer, asked.length, new Set(asked.map(({ headers }) => headers["Idempotency-Key"]))], [{ done: true }, 3, new Set(["a-key"])]);
  const refused = answerWith(() => BUSY);
  await assert.rejects(new Client().ask("GET", "/events", { patience: 1 }), { status: 503, retryAfterS: 0.001 });
  assert.equal(refused.length, 2);
});

test("what was refused is not asked again, and no answer is a problem of its own", async () => {
  const asked = answerWith(() => ({ type: "/problems/seats-taken", title: "Taken.", status: 409, seats: ["A-1-1"] }));
  const problem = await new Client().ask("POST", "/x").catch((found) => found);
  assert.ok(problem instanceof Problem);
  assert.deepEqual([asked.length, problem.slug, problem.members.seats, problem.unknown], [1, "seats-taken", ["A-1-1"], false]);
  answerWith(() => {
    throw new TypeError("no network");
  });
  await assert.rejects(new Client().ask("GET", "/x", { patience: 0 }), { status: 0, unknown: true, passing: true });
});

test("a full line is an answer, not a busy server", async () => {
  const asked = answerWith(() => ({ type: "/problems/line-full", status: 429 }));
  await assert.rejects(new Client().ask("POST", "/x"), { slug: "line-full" });
  assert.equal(asked.length, 1);
});

test("a join solves the challenge that the line asks for, and gives up after some", async () => {
  const needed = { type: "/problems/proof-of-work-needed", status: 403, challenge: { salt: "s" } };
  const asked = answerWith((_, nth) => (nth === 1 ? needed : { join_seq: 7, queue_token: "t" }));
  const fan = new Fan(new Client("", { cookies: false }), "show");
  await fan.join({}, { prove: async ({ salt }) => `solved ${salt}` });
  assert.deepEqual(asked.map(({ headers }) => headers["Onsale-Proof-Of-Work"]), [undefined, "solved s"]);
  assert.equal(fan.queueToken, "t");
  answerWith(() => needed);
  await assert.rejects(fan.join({}, { prove: async () => "wrong" }), { slug: "proof-of-work-needed" });
});

class FakeSource extends EventTarget {
  static CONNECTING = 0;
  static CLOSED = 2;
  static made = [];
  readyState = 1;

  constructor(url) {
    super();
    this.url = url;
    FakeSource.made.push(this);
  }

  close() {
    this.readyState = 2;
  }

  say(kind, data = {}) {
    const event = new Event(kind);
    event.data = JSON.stringify(data);
    this.dispatchEvent(event);
  }
}

function stream() {
  globalThis.EventSource = FakeSource;
  FakeSource.made = [];
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const heard = [];
  const states = [];
  const made = new Stream("/updates", { line: (frame) => heard.push(frame) }, (state) => states.push(state));
  made.open();
  return { made, heard, states, source: () => FakeSource.made.at(-1) };
}

test("a stream is live from its first frame on", () => {
  const { made, heard, states, source } = stream();
  source().onopen();
  assert.deepEqual(states, []);
  source().say("line", { head_seq: 3 });
  assert.deepEqual([heard, states, made.silent], [[{ head_seq: 3 }], ["live"], false]);
  mock.timers.tick(26_000);
  assert.ok(made.silent, "a sleeping phone leaves sockets that look open");
  made.close();
  mock.timers.reset();
});

test("a stream that brings no first frame is held back on its way: the page polls, and tries later and later", () => {
  mock.method(Math, "random", () => 0);
  const { states, source } = stream();
  const opened = () => FakeSource.made.length;
  source().onopen();
  mock.timers.tick(10_000);
  assert.deepEqual([states, source().readyState, opened()], [["polling"], 2, 1]);
  [5_000, 10_000, 20_000, 40_000, 60_000, 60_000].forEach((afterMs, before) => {
    mock.timers.tick(afterMs - 1);
    assert.equal(opened(), before + 1, `not before ${afterMs} ms`);
    mock.timers.tick(1);
    assert.equal(opened(), before + 2);
    source().onopen();
    mock.timers.tick(10_000);
  });
  mock.timers.reset();
  mock.restoreAll();
});

test("a cut stream reconnects by itself, and is called polling once that fails often", () => {
  const { states, source } = stream();
  source().say("line");
  source().readyState = FakeSource.CONNECTING;
  for (let n = 0; n < 3; n += 1) source().onerror();
  assert.deepEqual(states, ["live", "reconnecting", "polling"]);
  source().onopen();
  mock.timers.tick(500);
  assert.equal(states.at(-1), "live", "a resumed stream may have nothing to send");
  mock.timers.reset();
});

test("a stream that is turned away is crowded until the server takes it", () => {
  const { states, source } = stream();
  source().say("turned_away");
  source().readyState = FakeSource.CONNECTING;
  source().onerror();
  assert.deepEqual(states, ["crowded"]);
  source().onopen();
  source().say("line");
  assert.equal(states.at(-1), "live");
  mock.timers.reset();
});

test("prices are asked for once, and shown without fees while nobody knows them", async () => {
  const prices = new Prices("show", "EUR");
  assert.notEqual(prices.one(5000), "€52.50");
  const asked = answerWith(({ path }) => (path.includes("line=") ? { together_minor: 10500 } : { all_in: { 5000: 5250 }, fees: [], taxes: [] }));
  await prices.learn([5000, 5000]);
  await prices.learn([5000]);
  assert.deepEqual([prices.one(5000), asked.length], ["€52.50", 1]);
  assert.equal(await prices.together([[5000, 2]]), "€105.00");
  await prices.together([[5000, 2]]);
  assert.equal(asked.length, 2);
});

test("the price types of a hold are changed with the fan's pass", async () => {
  const asked = answerWith((_, nth) => (nth === 1 ? { pass: "p", checkout_key: "k" } : { reservation_id: "r" }));
  const fan = new Fan(new Client("", { cookies: false }), "show");
  await fan.claim();
  const held = await fan.changeTypes({ reservation_id: "r" }, { types: { "A-1-1": "child" } });
  const { method, path, body, headers } = asked[1];
  assert.deepEqual([method, path, body], ["POST", "/events/show/reservations/r/types", { types: { "A-1-1": "child" } }]);
  assert.deepEqual([headers.Authorization, held], ["Bearer p", { reservation_id: "r" }]);
});
