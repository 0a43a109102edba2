// The states of seats as they come over the wire, as shared/rules/seat_codes.py writes them: two bits a seat, and changes
// as numbers of variable length. Here a state is one byte a seat, in map order.

export const [FREE, HELD, SOLD, CLOSED] = [0, 1, 2, 3];
/** The same in the words of the list of seats. */
export const STATUSES = ["available", "reserved", "sold", "blocked"];
const MAGIC = 0x4f535331; // OSS1
const HEADER_BYTES = 20;

export function unpack(packed, seats) {
  if (packed.length !== Math.ceil(seats / 4)) throw new RangeError(`${seats} seats are not ${packed.length} bytes`);
  const codes = new Uint8Array(seats);
  for (let n = 0; n < seats; n += 1) codes[n] = (packed[n >> 2] >> (2 * (n & 3))) & 3;
  return codes;
}

/** Calls `changed(seat, code)` for each change, in map order. */
export function readChanges(data, seats, changed) {
  let [seat, number, shift] = [-1, 0, 0];
  for (const byte of data) {
    number += (byte & 0x7f) * 2 ** shift;
    shift += 7;
    if (byte >= 0x80) continue;
    seat += Math.floor(number / 4) + 1;
    if (seat >= seats) throw new RangeError(`there is no seat ${seat}`);
    changed(seat, number % 4);
    [number, shift] = [0, 0];
  }
  if (shift > 0) throw new RangeError("the last change is cut off");
}

/** `{version, codes}` of an answer of the state. */
export function decodeState(buffer) {
  const head = new DataView(buffer);
  if (head.byteLength < HEADER_BYTES || head.getUint32(0) !== MAGIC) throw new RangeError("this is no state of seats");
  const codes = unpack(new Uint8Array(buffer, HEADER_BYTES), head.getUint32(16));
  return { version: Number(head.getBigUint64(8)), codes };
}

export const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
