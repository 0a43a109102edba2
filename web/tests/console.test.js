import { streams } from "./console_stream.js";
import assert from "node:assert/strict";
import test from "node:test";
import { band, count, differences, duration, percent, plain, rate, UNKNOWN } from "../console/format.ts";
import { ages, alarmLog, alarms, changes, clockMs, connected, history, lastHeardMs, onVitals, PATHS, snapshot, stop, vitals, watch } from "../console/live.ts";

const START_MS = Date.now();
const figures = (seconds, more = {}) => ({
  event_id: "arena", at_ms: START_MS + seconds * 1000, ages: { queue: 0.5, inventory: null, orders: 4, notifier: 0 },
  line: { waiting: seconds }, rate: {}, stock: { sold: 7 }, orders: {}, wait: {}, streams: {}, room: {}, ...more,
});
const change = (id, more = {}) => ({ service: "queue", id, at_ms: START_MS + id, action: "set", ...more });
const alarm = (name, since_ms, more = {}) => ({ name, since_ms, summary: name, ...more });

// A page that watches an event, with its first snapshot.
function watching(more = {}) {
  stop();
  watch("arena");
  const stream = streams.at(-1);
  stream.send("snapshot", { name: "Arena", vitals: figures(0), alarms: [], processes: [], changes: [], approvals: [], ...more });
  return stream;
}

test("figures are written short, and what is unknown is a dash", () => {
  assert.deepEqual([null, 0, 1234.4].map(count), [UNKNOWN, "0", "1,234"]);
  assert.deepEqual([null, 0.05, 12.34, 123.4].map(rate), [UNKNOWN, "0.1", "12.3", "123"]);
  assert.deepEqual([[0, 9], [1, 60], [59, 60], [60, 60], [1, 0], [null, 9]].map(([part, all]) => percent(part, all)), ["0 %", "1.7 %", "98 %", "100 %", UNKNOWN, UNKNOWN]);
  assert.deepEqual([8.25, 59.6, 250, 240, 3599, 3900, 8 * 3600].map(duration), ["8.3 s", "1 min", "4 min 10 s", "4 min", "60 min", "1 h 05 min", "8 h 00 min"]);
  assert.deepEqual([band(20, null), band(18.2, 24), band(61, 80), band(1080, 1440), band(7200, 9000)], ["from 20 s", "18–24 s", "1 min", "18–24 min", "2–2.5 h"]);
});

test("a change names what is different, nested values by their path", () => {
  const before = { version: 1, rate_per_s: 50, pace: { guard: "on", rate_max: null } };
  const after = { version: 2, rate_per_s: 12, pace: { guard: "on", rate_max: 80 } };
  assert.deepEqual(differences(before, after), [
    { name: "rate per s", before: "50", after: "12" }, { name: "pace.rate max", before: "none", after: "80" },
  ]);
  assert.deepEqual(differences(null, after), []);
  assert.deepEqual(differences({}, { a: 1, b: 2, c: 3, d: 4 }), [], "something new is no change of each of its fields");
});

test("the runbook's text has code and no links", () => {
  assert.deepEqual(plain("See [the page](#x): `up`."), [{ code: false, text: "See the page: " }, { code: true, text: "up" }, { code: false, text: "." }]);
});

test("eight hours of figures keep what a chart shows, and no more", () => {
  const stream = watching();
  const heard = [];
  const deafen = onVitals((found) => heard.push(found.at_ms));
  for (let second = 1; second <= 8 * 3600; second++) {
    stream.send("vitals", figures(second));
    if (second % 60 === 0) stream.send("change", change(second));
    if (second % 100 === 0) stream.send("alarms", second % 200 ? [alarm("QueueLong", START_MS + second * 1000)] : []);
  }
  deafen();
  stream.send("vitals", figures(8 * 3600 + 1));
  assert.equal(heard.length, 8 * 3600, "who no longer listens hears nothing");
  assert.equal(history.at.length, 901);
  for (const path of PATHS) assert.equal(history.series[path].length, 901, path);
  assert.deepEqual([history.series["line.waiting"].at(0), history.series["line.waiting"].at(-1)], [8 * 3600 - 899, 8 * 3600 + 1]);
  assert.equal(history.series["stock.free"].at(-1), null, "what is not known is null");
  assert.deepEqual([changes.value.length, alarmLog.value.length], [200, 144]);
  for (let number = 0; number < 300; number++) stream.send("alarms", number % 2 ? [] : [alarm("QueueLong", START_MS + number)]);
  assert.equal(alarmLog.value.length, 200);
});

test("figures that come late or twice are not drawn twice", () => {
  const stream = watching();
  for (const second of [2, 1, 2, 3]) stream.send("vitals", figures(second));
  assert.deepEqual(history.at, [0, 2, 3].map((second) => START_MS + second * 1000));
});

test("a change stands once, newest first, however often it is told", () => {
  const stream = watching({ changes: [change(2), change(1)] });
  stream.send("change", change(3));
  stream.send("change", change(2, { reason: "told again" }));
  stream.send("change", change(2, { service: "orders" }));
  assert.deepEqual(changes.value.map(({ service, id, reason }) => [service, id, reason ?? ""]), [
    ["queue", 3, ""], ["orders", 2, ""], ["queue", 2, "told again"], ["queue", 1, ""],
  ]);
});

test("an alarm is one while it fires, and ends when it is told no more", () => {
  const stream = watching({ alarms: [alarm("QueueLong", 2000)] });
  stream.send("alarms", [alarm("QueueLong", 1000, { summary: "longer" }), alarm("Oversold", 3000)]);
  assert.deepEqual(alarms.value.map(({ name }) => name), ["QueueLong", "Oversold"]);
  const log = () => Object.fromEntries(alarmLog.value.map(({ name, since_ms, ended_ms, summary }) => [name, [since_ms, ended_ms, summary]]));
  assert.deepEqual(log(), { QueueLong: [1000, null, "longer"], Oversold: [3000, null, "Oversold"] });
  stream.send("vitals", figures(9));
  stream.send("alarms", [alarm("Oversold", 3000)]);
  assert.deepEqual(log().QueueLong, [1000, START_MS + 9000, "longer"]);
});

test("the age of every part grows while the console is silent", () => {
  watching();
  assert.deepEqual(ages.value, { queue: 0.5, inventory: null, orders: 4, notifier: 0 });
  clockMs.value = lastHeardMs.value + 2000;
  assert.equal(ages.value.queue, 0.5, "a second or two are nothing");
  clockMs.value = lastHeardMs.value + 10_000;
  assert.deepEqual(ages.value, { queue: 10.5, inventory: null, orders: 14, notifier: 10 });
});

test("what another event's stream brings is not shown", () => {
  const stream = watching();
  assert.ok(connected.value);
  watch("hall");
  assert.deepEqual([vitals.value, snapshot.value, history.at.length, connected.value], [null, null, 0, false]);
  stream.send("vitals", figures(5));
  assert.equal(vitals.value, null);
  assert.equal(streams.at(-1).address, "/console/api/events/hall/stream");
  stop();
});
