// Verifies a lottery from its published data alone, in this browser: the same arithmetic as `onsale lottery verify`
// (docs/use/lottery.md), with the browser's SHA-256. Each check has a sentence, a result, and its evidence.
import { fill } from "./words.js";

export const ALGORITHM = "onsale-lottery-1";
const ROUNDS = 16;
const EVERY_RANK_UP_TO = 200_000;
const HMAC = { name: "HMAC", hash: "SHA-256" };

const bytes = (text) => new TextEncoder().encode(text);
const fromHex = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
const toHex = (data) => Array.from(new Uint8Array(data), (byte) => byte.toString(16).padStart(2, "0")).join("");
const keyed = (key) => crypto.subtle.importKey("raw", key, HMAC, false, ["sign"]);
const sign = async (key, text) => new Uint8Array(await crypto.subtle.sign("HMAC", key, bytes(text)));

/** The permutation of 1 … n drawn by this key: entry number to rank. Numbers above n keep theirs. */
export async function order(n, key) {
  const signing = await keyed(key);
  const rows = Math.floor(Math.sqrt(Math.max(0, n - 1))) + 1;
  const columns = Math.max(1, Math.ceil(n / rows));
  const sizes = [columns, rows];
  const tables = await Promise.all(
    Array.from({ length: ROUNDS }, (_, number) =>
      Promise.all(
        Array.from({ length: sizes[number % 2] }, async (_, half) =>
          (await sign(signing, `${number}/${half}`)).reduce((rest, byte) => (rest * 256 + byte) % sizes[1 - (number % 2)], 0),
        ),
      ),
    ),
  );
  return (entry) => {
    if (entry < 1 || entry > n) return entry;
    for (let at = entry - 1; ; ) {
      let [row, column] = [Math.floor(at / columns), at % columns];
      tables.forEach((table, number) => {
        if (number % 2) column = (column + table[row]) % columns;
        else row = (row + table[column]) % rows;
      });
      at = row * columns + column;
      if (at < n) return at + 1;
    }
  };
}

/** The key of one lane's permutation. */
export async function drawKey(told, lane) {
  const { n, hash } = told.entrants[lane];
  const words = [ALGORITHM, told.event_id, told.epoch, lane, n, hash, told.public_value];
  return sign(await keyed(fromHex(told.seed)), words.join("\n"));
}

/** `[what, holds, detail]` per check; `holds` is null if it cannot be checked now. `place` is this fan's, if any. */
export async function check(told, place) {
  const before = (a, b) => (a && b ? Date.parse(a) < Date.parse(b) : null);
  const not = (held) => (held === null ? null : !held);
  const { known_at: knownAt, what } = told.rules.public_value;
  const by = told.queue_opens_at ?? told.closed_at;
  const committed = told.queue_opens_at ? texts.check_committed_opened : texts.check_committed_closed;
  const checks = [
    [texts.check_rules, told.algorithm === ALGORITHM, told.algorithm],
    [committed, by ? not(before(by, told.committed_at)) : null, told.committed_at],
    [texts.check_closed, not(before(told.closed_at, told.rules.entry_closes_at)), told.closed_at],
    [texts.check_counted, before(told.counted_at, knownAt), told.counted_at],
    [texts.check_drawn, not(before(told.drawn_at, knownAt)), told.drawn_at],
  ];
  if (!told.seed || told.public_value === null) {
    return [...checks, [texts.check_secret, null, texts.check_secret_later]];
  }
  const digest = toHex(await crypto.subtle.digest("SHA-256", fromHex(told.seed)));
  checks.push([texts.check_secret, digest === told.commitment, told.commitment]);
  checks.push([fill(texts.check_value, { what }), null, fill(texts.check_value_compare, { value: told.public_value })]);
  for (const [lane, { n }] of Object.entries(told.entrants)) {
    const rank = await order(n, await drawKey(told, lane));
    checks.push(everyPlace(lane, n, rank));
    if (place && String(place.lane) === lane) checks.push(mine(place, rank));
  }
  return checks;
}

function everyPlace(lane, n, rank) {
  const what = lane === "0" ? texts.check_places : fill(texts.check_places_lane, { lane });
  if (n > EVERY_RANK_UP_TO) return [what, null, fill(texts.check_too_many, { n })];
  const places = new Set();
  for (let entry = 1; entry <= n; entry += 1) places.add(rank(entry));
  return [what, places.size === n, fill(texts.check_computed, { n })];
}

function mine({ join_seq: entry, rank: told }, rank) {
  const holds = told === undefined || told === null ? null : rank(entry) === told;
  return [fill(texts.check_mine, { number: entry }), holds, fill(texts.check_computed_mine, { rank: rank(entry) })];
}
