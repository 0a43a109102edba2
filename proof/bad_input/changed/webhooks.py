"""Changes signed webhooks of a payment provider, access codes, promo codes and proofs of work, and sends each once.

A webhook whose signature does not hold changes nothing, a changed code opens nothing, and a changed proof makes no
place.
"""

import base64
import json
import time
import uuid
from collections.abc import Iterator
from random import Random
from typing import Any

import altcha
import asyncpg
import httpx
import orjson

from onsale.data_dir import with_driver
from onsale.sandbox.webhooks import SIGNATURE_HEADER, sign
from proof.bad_input.changed.credentials import mutations
from proof.bad_input.sale import Findings
from shared.contracts.fields import tidy
from tests.support.running.suite import RunningSuite, bearer, fan_of
from tests.support.wait import wait_until

WEBHOOKS, PROMO_CODE = "/webhooks/sandbox", "EARLY-2030"
LANES = [
    {"lane": 0, "name": "General", "weight": 1},
    {"lane": 1, "name": "Presale", "weight": 1, "code_required": True},
]
HARD = {"proof_of_work": "on", "least_hashes": 2_000, "most_hashes": 2_000}


def webhook_of(reference: str) -> bytes:
    charge = {"id": f"ch_{uuid.uuid4().hex}", "reference": reference, "status": "succeeded"}
    return orjson.dumps({"id": f"evt_{uuid.uuid4().hex}", "type": "charge.succeeded", "data": {"charge": charge}})


def unsigned_variants(body: bytes, secret: str, random: Random) -> Iterator[tuple[bytes, str]]:
    """Bodies with signatures that do not hold: of another body, time or secret, or not a signature at all."""
    now_s = int(time.time())
    good = sign(body, secret=secret, at_s=now_s)
    for at in random.sample(range(len(body)), 40):
        yield body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :], good
    yield from ((body + end, good) for end in (b" ", b"\n", b"\x00"))
    yield from ((other, good) for other in (b"", body[:-1], body * 2, body.decode().encode("utf-16")))
    yield from ((body, sign(body, secret=secret, at_s=now_s + by_s)) for by_s in (-400, -(10**9), 400, 10**9))
    yield from ((body, sign(body, secret=other, at_s=now_s)) for other in ("", "x", secret[:-1], f"{secret} "))
    changed = [text for text in mutations(good, random) if not _may_hold(text, good)]
    yield from ((body, text) for text in random.sample(changed, 120))
    odd = ("", "t=", "v1=", "t=1,v1=", f"t={'9' * 400},v1=x", f"t=-1,{good}", f"t=1,{good}", good.replace("v1", "v0"),
           f"t={now_s},v1=\xff", ",".join(["v1=x"] * 500))  # fmt: skip
    yield from ((body, text) for text in odd)


def _may_hold(text: str, good: str) -> bool:
    """Whether it is the same time and signature, with something else between them."""
    return {part.strip() for part in good.split(",")} <= {part.strip() for part in text.split(",")}


def signed_garbage(random: Random) -> Iterator[bytes]:
    """Bodies that the provider would never send, although signed: refused, and no server error."""
    yield from (b"", b"{", b"[]", b"null", b"1", b"\xff", b"{}", b'{"id":1}', b"[" * 5_000, b'{"type":"x","data":[]}')
    base = {"id": "e", "type": "charge.succeeded", "data": {"charge": {"id": "c", "reference": "r"}}}
    bad: tuple[Any, ...] = (None, 1, [], {}, "", "x" * 500, "a\x00b", "\ud800", True, 2**70, {"a": {}})
    for value in bad:
        yield from (json.dumps({**base, name: value}).encode() for name in base)
        charge = {"id": "c", "reference": "r", random.choice(("id", "reference")): value}
        yield json.dumps({**base, "data": {"charge": charge}}).encode()


class ChangedWebhooks:
    """Sends them to one suite. `reference` is an order that must stay as it is."""

    def __init__(self, suite: RunningSuite, found: Findings, random: Random, browser: httpx.AsyncClient) -> None:
        self._suite, self._found, self._random, self._browser = suite, found, random, browser
        keys = json.loads((suite.data_dir / "keys.json").read_text())["sandbox_webhook"]
        self._secret: str = keys.partition(":")[2]

    async def send_all(self, reference: str) -> None:
        body = webhook_of(reference)
        before = await self._stored()
        for changed, signature in unsigned_variants(body, self._secret, self._random):
            await self._post(changed, signature, {401}, "a webhook without a valid signature")
        if await self._stored() != before:
            self._found.add("webhooks", "a webhook without a valid signature was stored", reference)
        for _ in range(3):
            await self._post(body, sign(body, secret=self._secret, at_s=int(time.time())), {200}, "a signed webhook")
        if await self._stored() != before + 1:
            self._found.add("webhooks", "a webhook that came three times is not stored once", reference)
        for garbage in signed_garbage(self._random):
            signature = sign(garbage, secret=self._secret, at_s=int(time.time()))
            await self._post(garbage, signature, {200, 401}, "a signed webhook of nonsense")

    async def _post(self, body: bytes, signature: str, expected: set[int], what: str) -> None:
        self._found.count("mutated webhooks")
        headers = {SIGNATURE_HEADER.encode(): signature.encode("latin-1")}
        answer = await self._browser.post(WEBHOOKS, content=body, headers=headers)
        if answer.status_code not in expected:
            self._found.add("webhooks", f"{what} is answered {answer.status_code}", f"{signature} {body[:300]!r}")

    async def _stored(self) -> int:
        connection = await asyncpg.connect(with_driver(self._suite.engines["postgres_url"]))
        try:
            return int(await connection.fetchval("SELECT count(*) FROM orders.webhook_inbox WHERE provider = 'sandbox' "
                                                 "AND kind = 'charge.succeeded' AND reference <> 'r'"))  # fmt: skip
        finally:
            await connection.close()


async def send_changed_codes(suite: RunningSuite, found: Findings, random: Random, browser: httpx.AsyncClient) -> None:
    """Access codes and promo codes, each changed in one place: none opens the lane or lowers the price."""
    event_id = await suite.open_event(room={"lanes": LANES})
    codes, promo = f"/admin/queue/events/{event_id}/codes", f"/admin/orders/events/{event_id}/promo-codes/{PROMO_CODE}"
    async with suite.operator() as operator:
        made = await operator.post(codes, json={"lane": 1, "count": 1, "reason": "test"})
        await operator.put(promo, json={"percent": "20", "reason": "test"})
    code = made.json()["codes"][0]
    for text in random.sample([each for each in mutations(code, random) if _other_code(each, code)], 60):
        answer = await browser.post(f"/events/{event_id}/queue", json={"code": text})
        _judge(found, "access codes", text, answer, refused=answer.status_code not in (200, 201))
    fan = await fan_of(browser, event_id).come_in()
    hold = await fan.hold({"seats": ["A-1-1"]})
    others = [each for each in mutations(PROMO_CODE, random) if _other_code(each, PROMO_CODE)]
    for text in random.sample(others, 40):
        wanted = {"reservation_id": hold["reservation_id"], "promo_code": text}
        answer = await browser.post("/orders/quote", json=wanted, headers=bearer(fan.admission))
        cheap = answer.status_code == 200 and answer.json()["total_minor"] < 5250
        _judge(found, "promo codes", text, answer, refused=not cheap)


def _other_code(text: str, code: str) -> bool:
    """Whether it is really another code: case, spaces and dashes make none, nor O for 0, I or L for 1. Blanks alone are
    no code at all.
    """
    return _plain(text) != _plain(code) and "\xff" not in text and tidy(text) != ""


def _plain(code: str) -> str:
    read = code.upper().replace("O", "0").replace("I", "1").replace("L", "1")
    return "".join(character for character in read if character.isalnum())


async def send_changed_proofs(suite: RunningSuite, found: Findings, random: Random, browser: httpx.AsyncClient) -> None:
    """Proofs of work with one member changed: none makes a place."""
    event_id = await suite.open_event(room={"friction": HARD})
    path = f"/events/{event_id}/queue"

    async def proof_is_needed() -> bool:
        return (await browser.get(f"{path}/challenge")).status_code == 200

    await wait_until(proof_is_needed, timeout_s=20)
    challenge = altcha.Challenge.from_dict((await browser.post(path)).json()["challenge"])
    solution = altcha.solve_challenge(challenge)
    assert solution is not None
    proof = altcha.Payload(challenge, solution).to_base64()
    changed = [("", text) for text in random.sample(list(mutations(proof, random)), 60)]
    for member, text in (*changed, *_other_members(proof)):
        if _read(text) == _read(proof):
            continue
        answer = await browser.post(path, headers={b"onsale-proof-of-work": text.encode("latin-1")})
        _judge(found, f"proofs of work, {member}", text, answer, refused=answer.status_code not in (200, 201))


def _other_members(proof: str) -> Iterator[tuple[str, str]]:
    """The proof with one member changed, by its name."""
    value = json.loads(base64.b64decode(proof))
    for holder in (value, *(each for each in value.values() if isinstance(each, dict))):
        for name in list(holder):
            kept = holder[name]
            values: tuple[Any, ...] = (None, 0, -1, 2**70, "", "x", [], {}, 1e308, True)
            for bad in values:
                holder[name] = bad
                yield name, base64.b64encode(json.dumps(value).encode()).decode()
            holder[name] = kept


def _read(text: str) -> Any:
    """What the library reads in a proof, which skips names that it does not know; the text itself if nothing."""
    try:
        read = altcha.Payload.from_base64(text).to_dict()
    except (ValueError, KeyError, TypeError, AttributeError):
        return text
    read["solution"].pop("time", None)  # how long it took: no rule
    return read


def _judge(found: Findings, what: str, text: str, answer: httpx.Response, *, refused: bool) -> None:
    found.count("mutated codes")
    if answer.status_code >= 500 or not refused:
        found.add(what, f"a changed one is answered {answer.status_code}", f"{text[:500]} -> {answer.text[:200]}")
