// Finds the counter whose SHA-256 of salt, nonce and counter has the required prefix: ALTCHA's "SHA-256" with cost 1.
// The message is always 36 bytes, one block, so a try is one compression. The browser's own SHA-256 answers through a
// promise each time, which is slower for such short messages, and is missing on plain HTTP.

const TRIES_PER_REPORT = 20_000;
const LAST_COUNTER = 0xffffffff;
const MESSAGE_BYTES = 36;
const K = new Uint32Array(64);
const START = new Uint32Array(8);
const words = new Uint32Array(64);
const hash = new Uint32Array(8);

/** The constants of SHA-256 are the first bits of the roots of the first primes. */
function prepare() {
  const fraction = (root) => ((root - Math.floor(root)) * 0x100000000) >>> 0;
  for (let candidate = 2, found = 0; found < 64; candidate += 1) {
    let prime = true;
    for (let divisor = 2; divisor * divisor <= candidate; divisor += 1) prime &&= candidate % divisor !== 0;
    if (!prime) continue;
    if (found < 8) START[found] = fraction(Math.sqrt(candidate));
    K[found] = fraction(Math.cbrt(candidate));
    found += 1;
  }
}

/** One compression of the block in `words[0..15]`, into `hash`. */
function compress() {
  for (let i = 16; i < 64; i += 1) {
    const x = words[i - 15];
    const y = words[i - 2];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    words[i] = words[i - 16] + s0 + words[i - 7] + s1;
  }
  let [a, b, c, d, e, f, g, h] = START;
  for (let i = 0; i < 64; i += 1) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + words[i]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  const end = [a, b, c, d, e, f, g, h];
  for (let i = 0; i < 8; i += 1) hash[i] = START[i] + end[i];
}

const bytes = (hex) => hex.match(/../g).map((pair) => Number.parseInt(pair, 16));
const hexOf = (numbers) => Array.from(numbers, (word) => word.toString(16).padStart(8, "0")).join("");

/** The block of one try: salt, nonce, counter, then the padding that every 36-byte message has. */
function block({ salt, nonce }) {
  const message = new Uint8Array(64);
  message.set([...bytes(salt), ...bytes(nonce)]);
  message[MESSAGE_BYTES] = 0x80;
  const view = new DataView(message.buffer);
  view.setUint32(60, MESSAGE_BYTES * 8);
  return Uint32Array.from({ length: 16 }, (_, i) => view.getUint32(i * 4));
}

export function solve(parameters, report = () => {}) {
  if (parameters.algorithm !== "SHA-256" || parameters.cost !== 1) throw new Error("another kind of challenge");
  const first = block(parameters);
  const wanted = parameters.keyPrefix.toLowerCase();
  const wantedWord = Number.parseInt(wanted.slice(0, 8), 16);
  for (let counter = 0; counter <= LAST_COUNTER; counter += 1) {
    words.set(first);
    words[8] = counter;
    compress();
    if (hash[0] === wantedWord && hexOf(hash).startsWith(wanted)) return { counter, derivedKey: hexOf(hash) };
    if (counter % TRIES_PER_REPORT === 0) report(Math.min(1, counter / (parameters.data?.hashes ?? counter + 1)));
  }
  throw new Error("no counter solves this challenge");
}

prepare();
globalThis.onmessage = ({ data }) => {
  const solution = solve(data, (progress) => globalThis.postMessage({ progress }));
  globalThis.postMessage({ solution });
};
