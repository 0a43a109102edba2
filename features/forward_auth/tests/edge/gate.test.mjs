/** The shared part of the edge gates with a clock of its own: fetching, keeping and rotating keys, outages, settings. */
import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, sign, webcrypto } from "node:crypto";
import test from "node:test";
import { verify as verifyInJavaScript } from "../../../../deploy/edge/ed25519.js";
import { Gate, readSettings } from "../../../../deploy/edge/gate.js";

globalThis.crypto ??= webcrypto; // before Node 20
const b64 = (text) => Buffer.from(text).toString("base64url");
const VARIABLES = { ONSALE_EVENT: "show", ONSALE_WAITING_ROOM: "https://room.example", ONSALE_SITES: "https://shop.example" };

function keyPair(kid) {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const jwk = { ...publicKey.export({ format: "jwk" }), kid, use: "sig", alg: "EdDSA" };
  return { kid, privateKey, jwk, raw: new Uint8Array(Buffer.from(jwk.x, "base64url")) };
}

/** A gate with its keys' server and a clock in seconds. */
function stand(variables = {}) {
  const found = { now: 1_000_000, calls: 0, away: false, answer: undefined, keys: [keyPair("k1")] };
  const given = { ...VARIABLES, ...variables };
  found.gate = new Gate(readSettings((name) => given[name]), {
    now: () => found.now,
    verify: verifyInJavaScript,
    fetchRedirect: async () => new Response(null, { status: 500 }),
    fetchKeys: async (url) => {
      found.calls += 1;
      assert.equal(url, "https://room.example/.well-known/jwks.json");
      if (found.away) throw new TypeError("unreachable");
      return new Response(found.answer ?? JSON.stringify({ keys: found.keys.map(({ jwk }) => jwk) }));
    },
  });
  found.pass = (key = found.keys[0], change = {}) => {
    const claims = { iss: "onsale", aud: "show", sub: "holder", jti: "1-0-1-1", typ: "onsale-pass",
      nbf: found.now - 60, exp: found.now + 100_000, ...change };
    const signed = `${b64(JSON.stringify({ alg: "EdDSA", kid: key.kid, typ: "JWT" }))}.${b64(JSON.stringify(claims))}`;
    return `${signed}.${sign(null, Buffer.from(signed), key.privateKey).toString("base64url")}`;
  };
  /** 200 for a request that may go on to the shop, else the status of the gate's answer. */
  found.ask = async (pass, path = "/") => {
    const headers = { "sec-fetch-mode": "navigate", ...(pass && { cookie: `__Host-onsale_pass_show=${pass}` }) };
    const decision = await found.gate.decide(new Request(`https://shop.example${path}`, { headers }));
    return decision.answer?.status ?? 200;
  };
  return found;
}

test("keys are fetched once, again when they are old, and kept while the gateway is away, but not for ever", async () => {
  const at = stand();
  const pass = at.pass();
  assert.deepEqual(await Promise.all([at.ask(pass), at.ask(pass)]), [200, 200]);
  const calls = at.calls;
  at.now += 299;
  assert.equal(await at.ask(pass), 200);
  assert.equal(at.calls, calls);
  at.away = true;
  at.now += 2;
  assert.equal(await at.ask(pass), 200, "known keys still count");
  assert.equal(at.calls, calls + 1);
  assert.equal(await at.ask(pass), 200);
  assert.equal(at.calls, calls + 1, "the gateway is not asked again within ten seconds");
  at.now += 86_401;
  assert.equal(await at.ask(pass), 503);
  at.away = false;
  at.now += 11;
  assert.equal(await at.ask(pass), 200);
});

test("a new key is found when a pass names it, at most every ten seconds; an old one is gone with its next fetch", async () => {
  const at = stand();
  const [old, added] = [at.keys[0], keyPair("k2")];
  assert.equal(await at.ask(at.pass()), 200);
  at.keys = [added, old];
  assert.equal(await at.ask(at.pass(added)), 303);
  assert.equal(at.calls, 1, "within ten seconds of the last fetch");
  at.now += 11;
  assert.equal(await at.ask(at.pass(added)), 200);
  assert.equal(await at.ask(at.pass(old)), 200);
  assert.equal(at.calls, 2);
  at.keys = [added];
  at.now += 301;
  assert.equal(await at.ask(at.pass(old)), 303, "withdrawn");
  for (let unknown = 0; unknown < 20; unknown++) await at.ask(at.pass(keyPair(`u${unknown}`)));
  assert.equal(at.calls, 3, "passes that name unknown keys cost no fetch each");
});

test("an answer that is too long, has too many keys or none is not taken", async () => {
  for (const answer of ["x", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "k1"}]}',
    '{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": "c2hvcnQ"}]}']) {
    const at = stand();
    at.answer = answer;
    assert.equal(await at.ask(at.pass()), 503, answer.slice(0, 40));
  }
  const long = stand();
  long.answer = JSON.stringify({ keys: long.keys.map(({ jwk }) => jwk) }) + " ".repeat(70_000);
  assert.equal(await long.ask(long.pass()), 503);
  const at = stand();
  at.keys = Array.from({ length: 40 }, (_, number) => keyPair(`k${number}`));
  assert.equal(await at.ask(at.pass(at.keys[15])), 200);
  assert.equal(await at.ask(at.pass(at.keys[16])), 303);
});

test("a pass holds from nbf to exp with five seconds of leeway", async () => {
  const at = stand();
  for (const [change, status] of [[{ exp: at.now - 4 }, 200], [{ exp: at.now - 6 }, 303], [{ nbf: at.now + 4 }, 200],
    [{ nbf: at.now + 6 }, 303], [{ exp: undefined }, 303], [{ nbf: undefined }, 303], [{ exp: String(at.now + 9) }, 303],
    [{ sub: undefined }, 303]]) {
    assert.equal(await at.ask(at.pass(at.keys[0], change)), status, JSON.stringify(change));
  }
});

test("a pass needs the signature of its key and does not choose the algorithm, however it is signed", async () => {
  const at = stand();
  assert.equal(await at.ask(at.pass(keyPair("k1"))), 303, "another key of the same name");
  const [{ kid, privateKey }] = at.keys;
  const claims = at.pass().split(".")[1];
  for (const [change, status] of [[{}, 200], [{ alg: "none" }, 303], [{ alg: "HS256" }, 303], [{ alg: undefined }, 303],
    [{ crit: ["x"] }, 303], [{ kid: 1 }, 303]]) {
    const signed = `${b64(JSON.stringify({ alg: "EdDSA", kid, typ: "JWT", ...change }))}.${claims}`;
    const pass = `${signed}.${sign(null, Buffer.from(signed), privateKey).toString("base64url")}`;
    assert.equal(await at.ask(pass), status, JSON.stringify(change));
  }
});

test("open: everybody passes for the limit of an outage, and flapping does not begin another one", async () => {
  const at = stand({ ONSALE_ON_OUTAGE: "open", ONSALE_OPEN_FOR_S: "30" });
  const asks = async (afterS) => { at.now += afterS; return at.ask(); };
  assert.equal(await asks(0), 303);
  at.away = true;
  assert.equal(await asks(301), 200, "the keys are old and cannot be fetched");
  assert.equal(await asks(29), 200);
  assert.equal(await asks(2), 303, "the limit is over");
  assert.equal(await at.ask(at.pass()), 200, "a pass works by the known keys");
  at.away = false;
  assert.equal(await asks(11), 303);
  at.away = true;
  at.now += 290; // the keys are young: nothing is fetched, nothing is known to be wrong
  assert.equal(await asks(0), 303);
  assert.equal(await asks(11), 303, "the same outage");
  at.away = false;
  assert.equal(await asks(11), 303);
  assert.equal(await asks(301), 303);
  at.away = true;
  assert.equal(await asks(301), 200, "after it was healthy for long, an outage is a new one");
});

test("closed: without keys a pass cannot be checked, and who has none waits for one", async () => {
  const at = stand({ ONSALE_LET_THROUGH: "/up" });
  at.away = true;
  assert.deepEqual([await at.ask(at.pass()), await at.ask(), await at.ask(at.pass(), "/up")], [503, 303, 200]);
  assert.equal(at.calls, 1);
});

test("over HTTPS the cookies are of this host alone, and the way back names page and browser", async () => {
  const at = stand();
  const request = new Request("https://shop.example/a?b=c%20d", { headers: { "sec-fetch-mode": "navigate" } });
  const { answer } = await at.gate.decide(request);
  const [address, fragment] = answer.headers.get("location").split("#");
  const [, id] = /^__Host-onsale_gate_show=([A-Za-z0-9_-]{22}); Path=\/; Max-Age=604800; HttpOnly; SameSite=Lax; Secure$/
    .exec(answer.headers.get("set-cookie"));
  const gate = createHash("sha256").update(`onsale gate ${id}`).digest().subarray(0, 18).toString("base64url");
  assert.equal(address, "https://room.example/e/show");
  assert.deepEqual(Object.fromEntries(new URLSearchParams(fragment)), { return_to: "https://shop.example/a?b=c%20d", gate });
  const insecure = new Request("http://shop.example/", { headers: { cookie: `__Host-onsale_pass_show=${at.pass()}` } });
  assert.equal((await at.gate.decide(insecure)).answer.status, 401);
});

test("settings that are missing or wrong stop the deployment", () => {
  for (const [name, value] of [["ONSALE_EVENT", ""], ["ONSALE_EVENT", "a/b"], ["ONSALE_WAITING_ROOM", ""],
    ["ONSALE_WAITING_ROOM", "https://room.example/path"], ["ONSALE_SITES", "shop.example"], ["ONSALE_GATEWAY", "//x"],
    ["ONSALE_ON_OUTAGE", "maybe"], ["ONSALE_OPEN_FOR_S", "0"], ["ONSALE_OPEN_FOR_S", "86400"], ["ONSALE_OPEN_FOR_S", "x"]]) {
    assert.throws(() => readSettings((key) => ({ ...VARIABLES, [name]: value })[key]), Error, `${name}=${value}`);
  }
});

test("Ed25519 in JavaScript agrees with OpenSSL, and accepts one spelling of a signature", async () => {
  const order = 2n ** 252n + 27742317777372353535851937790883648493n;
  for (let size = 0; size < 200; size += 13) {
    const { privateKey, raw } = keyPair("k");
    const message = webcrypto.getRandomValues(new Uint8Array(size));
    const signature = new Uint8Array(sign(null, message, privateKey));
    assert.ok(await verifyInJavaScript(raw, signature, message));
    assert.ok(!(await verifyInJavaScript(raw, signature, new Uint8Array([...message, 1]))));
    assert.ok(!(await verifyInJavaScript(keyPair("k").raw, signature, message)));
    for (const at of [0, 31, 32, 63]) {
      const changed = signature.slice();
      changed[at] ^= 1;
      assert.ok(!(await verifyInJavaScript(raw, changed, message)), `byte ${at}`);
    }
    let scalar = order + signature.slice(32).reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
    const spelt = Uint8Array.from({ length: 32 }, () => { const byte = Number(scalar & 255n); scalar >>= 8n; return byte; });
    assert.ok(!(await verifyInJavaScript(raw, new Uint8Array([...signature.slice(0, 32), ...spelt]), message)));
  }
  assert.ok(!(await verifyInJavaScript(new Uint8Array(32).fill(255), new Uint8Array(64), new Uint8Array())));
});
