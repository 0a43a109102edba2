import { answerWith } from "./page.js";
import assert from "node:assert/strict";
import test, { mock } from "node:test";
import { now, observe, secondsUntil } from "../fans/clock.js";
import { Line } from "../fans/line.js";

const place = (more) => ({ status: "waiting", join_seq: 500, position_in_queue: 400, head_seq: 100, estimated_wait_time: 800, estimated_wait_low: 600, estimated_wait_high: 1000, poll_after_ms: 60_000, ...more });

async function waiting(more) {
  const line = new Line(crypto.randomUUID());
  answerWith(() => place(more));
  await line.check();
  return line;
}

test("the position falls with the head and never rises within an epoch", async () => {
  const line = await waiting();
  line.hear({ epoch: 1, head_seq: 300 });
  assert.equal(line.position, 200);
  line.hear({ epoch: 1, head_seq: 250 });
  assert.equal(line.position, 200, "an old frame moves nobody back");
  line.hear({ epoch: 2, head_seq: 0 });
  assert.equal(line.position, 500, "a new epoch begins anew");
});

test("the estimate shrinks with the position, and grows only with a reason", async () => {
  const line = await waiting();
  line.hear({ epoch: 1, head_seq: 300 });
  assert.equal(line.estimateS, 400);
  assert.deepEqual(line.estimateRange, [300, 500]);
  answerWith(() => place({ position_in_queue: 200, head_seq: 300, estimated_wait_time: 900 }));
  await line.check();
  assert.equal(line.estimateS, 400, "another process may know less");
  answerWith(() => place({ position_in_queue: 200, head_seq: 300, estimated_wait_time: 900, estimate_changed: { reason: "throttled", at: "now" } }));
  await line.check();
  assert.equal(line.estimateS, 900);
});

test("a lane has its own head, name and time", async () => {
  const line = await waiting({ lane: 1 });
  line.hear({ epoch: 1, head_seq: 499, sale_starts_at: "2030-01-01T10:00:00Z", lanes: { 1: { head_seq: 450, name: "Club", opens_at: "2030-01-01T09:00:00Z" } } });
  line.hear({ epoch: 1, lanes: { 1: { head_seq: 460 } } });
  assert.deepEqual([line.position, line.laneName, line.startsAt], [40, "Club", "2030-01-01T10:00:00Z"]);
});

test("with a lottery there is no position before the draw, then the drawn rank", async () => {
  const line = await waiting({ position_in_queue: null, head_seq: 0 });
  line.hear({ epoch: 1, head_seq: 0, lottery: "closed" });
  assert.equal(line.position, null);
  answerWith(() => place({ rank: 30, position_in_queue: 30, head_seq: 0 }));
  await line.check();
  line.hear({ head_seq: 10 });
  assert.equal(line.position, 20);
});

test("a place that the server does not know is none", async () => {
  const line = await waiting();
  answerWith(() => ({ type: "/problems/stale-epoch", status: 409 }));
  assert.equal(await line.check(), null);
  answerWith(() => ({ type: "/problems/unavailable", status: 503 }));
  await assert.rejects(line.check(), { status: 503 }, "silence is no answer");
});

test("polls come when the server says, and sooner shortly before the call", async () => {
  mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const line = new Line(crypto.randomUUID());
  const asked = answerWith(() => place());
  await line.check();
  line.watch();
  mock.timers.tick(47_000);
  assert.equal(asked.length, 1);
  mock.timers.tick(14_000);
  assert.equal(asked.length, 2);
  await new Promise((resume) => setImmediate(resume));
  line.hear({ epoch: 1, head_seq: 500 });
  mock.timers.tick(2_100);
  assert.equal(asked.length, 3);
  await new Promise((resume) => setImmediate(resume)); // the answers are taken, and the next poll is planned
  line.rest();
  mock.timers.reset();
});

const AT = Date.parse("2030-01-01T12:00:00Z");
const publicLine = (more) => ({ state: "open", epoch: 1, head_seq: 100, tail_seq: 90_000, rate_per_s: 10, message: null, server_time: new Date(AT).toISOString(), sale_starts_at: null, seconds_per_place: 0.1, estimate_changed: null, estimate_band: 0.2, poll_after_ms: 10_000, heartbeat_after_ms: 45_000, near_places: 400, ...more });
const CHANGED = { reason: "slower", at: "2030-01-01T11:59:00Z" };
const FAR = { join_seq: 50_100, position_in_queue: 50_000, estimated_wait_time: 5_000, poll_after_ms: 25_000, heartbeat_after_ms: 40_000 };
const asks = () => new Promise((resume) => setImmediate(resume));

/** A page far back in a long line that has just asked for its status; `asked` are its requests from then on. */
async function farBack(mock) {
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: AT });
  const line = new Line(crypto.randomUUID());
  let status = place(FAR);
  const asked = answerWith(({ path }) => (path.endsWith("/status") ? status : publicLine()));
  line.hear(publicLine());
  await line.check();
  asked.length = 0;
  line.watch();
  return { line, asked, becomes: (next) => (status = next) };
}

test("far back in a long line the public line says what the status would, and the status is a rare heartbeat", async ({ mock }) => {
  const { line, asked } = await farBack(mock);
  line.hear(publicLine({ head_seq: 30_100, message: "Doors at eight", seconds_per_place: 0.2, estimate_changed: CHANGED }));
  assert.deepEqual([line.position, line.place.status, line.place.message, line.estimateS], [20_000, "waiting", "Doors at eight", 4_000]);
  line.hear(publicLine({ head_seq: 30_100, state: "prequeue", sale_starts_at: "2030-01-01T13:00:00Z" }));
  assert.equal(line.place.status, "prequeue");
  mock.timers.tick(31_000);
  assert.equal(asked.length, 0, "no poll as in a short line");
  mock.timers.tick(9_100);
  assert.deepEqual(asked.map(({ path }) => path.split("/").pop()), ["status"]);
  await asks();
  line.rest();
});

test("a page asks for its status again when its place comes near the head, and at once when it is reached", async ({ mock }) => {
  const { line, asked } = await farBack(mock);
  line.hear(publicLine({ head_seq: 49_700 }));
  mock.timers.tick(10_000);
  assert.equal(asked.length, 1, "within ten seconds, at random");
  await asks();
  line.hear(publicLine({ head_seq: 50_100 }));
  mock.timers.tick(2_000);
  assert.equal(asked.length, 2);
  await asks();
  line.rest();
});

test("pages of a line that is not long any more, or begins anew, ask for their status at different times", async ({ mock }) => {
  for (const news of [{ heartbeat_after_ms: null }, { epoch: 2, head_seq: 0 }]) {
    const due = [];
    for (let page = 0; page < 20; page += 1) {
      const { line, asked } = await farBack(mock);
      line.hear(publicLine(news));
      while (asked.length === 0) mock.timers.tick(100);
      due.push(Date.now() - AT);
      await asks();
      line.rest();
      mock.timers.reset();
    }
    assert.ok(Math.max(...due) <= 10_100 && Math.max(...due) - Math.min(...due) > 3_000, String(due));
  }
});

test("the start of the sale is read from the public line", async ({ mock }) => {
  const { line, asked } = await farBack(mock);
  line.begin();
  assert.deepEqual(asked.map(({ path }) => path.split("/").pop()), ["queue"]);
  await asks();
  line.rest();
});

test("a page that learns that the line is long reads it, also with a live stream", async () => {
  const line = new Line(crypto.randomUUID());
  const asked = answerWith(({ path }) => (path.endsWith("/status") ? place(FAR) : publicLine()));
  line.hear({ epoch: 1, head_seq: 100, state: "open" });
  await line.check();
  assert.equal(asked.length, 2);
  line.hear({ epoch: 1, head_seq: 200, state: "open" });
  assert.equal(line.position, 49_900);
  line.rest();
});

test("deadlines are read by the server's clock once it differs by more than its header tells", () => {
  const answered = (date) => ({ headers: new Headers({ Date: date }) });
  const ms = Date.parse("2030-01-01T00:00:00Z");
  observe(answered(new Date(Date.now() + 1_000).toUTCString()), Date.now(), Date.now());
  assert.ok(Math.abs(now() - Date.now()) < 5, "a second is what the header leaves open");
  observe(answered("Tue, 01 Jan 2030 00:00:00 GMT"), Date.now(), Date.now());
  assert.ok(Math.abs(now() - ms - 500) < 100);
  assert.ok(Math.abs(secondsUntil("2030-01-01T00:01:00Z") - 59.5) < 0.2);
  observe(answered("Wed, 01 Jan 2031 00:00:00 GMT"), Date.now() - 9_000, Date.now());
  assert.ok(Math.abs(now() - ms - 500) < 200, "a slow answer knows less");
});
