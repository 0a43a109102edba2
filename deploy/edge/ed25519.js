/**
 * Verifies Ed25519 signatures (RFC 8032, section 5.1.7) where WebCrypto cannot, with BigInt and the runtime's SHA-512.
 * It handles public values only, so it needs no constant time. Like OpenSSL it compares R as bytes, and it refuses
 * scalars and points that are not reduced: a message has one signature.
 */

const P = 2n ** 255n - 19n;
const L = 2n ** 252n + 27742317777372353535851937790883648493n;
const D = 37095705934669439343138083508754565189542113879843219016388785533085940283555n;
const SQRT_OF_MINUS_1 = 19681161376707505956807079304988542015446066515923890162744021073123829784752n;
const BASE = point(
  15112221349535400772501151409588531511454012693041857206046113283949847762202n,
  46316835694926478169428394003475163141307993866256225615783033603165251855960n,
);
/** @type {Point} */
const ZERO = [0n, 1n, 1n, 0n];

/**
 * @param {Uint8Array} key @param {Uint8Array} signature @param {Uint8Array} message
 * @returns {Promise<boolean>}
 */
export async function verify(key, signature, message) {
  if (key.length !== 32 || signature.length !== 64) return false;
  const scalar = number(signature.slice(32));
  const minusKey = negated(decoded(key));
  if (scalar >= L || minusKey === null) return false;
  const hashed = new Uint8Array([...signature.slice(0, 32), ...key, ...message]);
  const factor = number(new Uint8Array(await crypto.subtle.digest("SHA-512", hashed))) % L;
  const found = encoded(sumOfProducts(scalar, BASE, factor, minusKey));
  return found.every((byte, at) => byte === signature[at]);
}

/** @typedef {[bigint, bigint, bigint, bigint]} Point extended coordinates X, Y, Z, T */

/** @param {bigint} x @param {bigint} y @returns {Point} */
function point(x, y) {
  return [x, y, 1n, mod(x * y)];
}

/** @param {bigint} a */
function mod(a) {
  const rest = a % P;
  return rest < 0n ? rest + P : rest;
}

/** @param {bigint} base @param {bigint} exponent */
function power(base, exponent) {
  let result = 1n;
  for (; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = (result * base) % P;
    base = (base * base) % P;
  }
  return result;
}

/** The little-endian number. @param {Uint8Array} bytes */
function number(bytes) {
  let sum = 0n;
  for (let at = bytes.length - 1; at >= 0; at--) sum = (sum << 8n) | BigInt(bytes[at]);
  return sum;
}

/** @param {Point} p @param {Point} q @returns {Point} */
function added([x1, y1, z1, t1], [x2, y2, z2, t2]) {
  const a = mod((y1 - x1) * (y2 - x2));
  const b = ((y1 + x1) * (y2 + x2)) % P;
  const c = (2n * D * ((t1 * t2) % P)) % P;
  const d = (2n * z1 * z2) % P;
  const [e, f, g, h] = [b - a, d - c, d + c, b + a];
  return [mod(e * f), mod(g * h), mod(f * g), mod(e * h)];
}

/** a·p + b·q, bit by bit for both at once. @param {bigint} a @param {Point} p @param {bigint} b @param {Point} q */
function sumOfProducts(a, p, b, q) {
  const choices = [null, p, q, added(p, q)];
  let sum = ZERO;
  for (let bit = 252n; bit >= 0n; bit--) {
    sum = added(sum, sum);
    const choice = choices[Number(((a >> bit) & 1n) | (((b >> bit) & 1n) << 1n))];
    if (choice !== null) sum = added(sum, choice);
  }
  return sum;
}

/** The point of its encoding, null if there is none. @param {Uint8Array} bytes */
function decoded(bytes) {
  const value = number(bytes);
  const odd = value >> 255n;
  const y = value & ((1n << 255n) - 1n);
  if (y >= P) return null;
  const u = mod(y * y - 1n);
  const v = mod(D * y * y + 1n);
  const v3 = (v * v * v) % P;
  let x = (u * v3 * power((u * v3 * v3 * v) % P, (P - 5n) / 8n)) % P;
  if (mod(v * x * x - u) !== 0n) x = (x * SQRT_OF_MINUS_1) % P;
  if (mod(v * x * x - u) !== 0n || (x === 0n && odd === 1n)) return null;
  return point((x & 1n) === odd ? x : P - x, y);
}

/** @param {Point | null} p @returns {Point | null} */
function negated(p) {
  return p && [mod(-p[0]), p[1], p[2], mod(-p[3])];
}

/** @param {Point} p */
function encoded([x, y, z]) {
  const inverse = power(z, P - 2n);
  let value = ((y * inverse) % P) | ((((x * inverse) % P) & 1n) << 255n);
  return Uint8Array.from({ length: 32 }, () => {
    const byte = Number(value & 255n);
    value >>= 8n;
    return byte;
  });
}
