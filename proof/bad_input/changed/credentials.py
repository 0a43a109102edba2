"""Changes credentials of a running suite in every way, and sends each once: all are refused with 401 or 403, operators'
also with 429, as their wrong keys are limited.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx
import orjson

from proof.bad_input.sale import KEYS, Findings, Sale
from shared.http.http1 import ConnectionLost, HttpClient, HttpResponse
from shared.security.auth import SESSION_COOKIE
from tests.support.providers.identity_provider import jwt_by_secret
from tests.support.running.suite import RunningSuite, bearer

HEADERS: tuple[dict[str, Any], ...] = (
    {"alg": "none"}, {"alg": "None"}, {"alg": "HS256"}, {"alg": "HS384"}, {"alg": "EdDSA"}, {"alg": "RS256"},
    {"kid": "k2"}, {"kid": "../k1"}, {"kid": ""}, {"kid": None}, {"jku": "http://a"}, {"crit": ["a"]},
    {"jwk": {"kty": "oct", "k": "AA"}}, {"x": "y" * 1_000},
)  # fmt: skip
CLAIMS: tuple[dict[str, Any], ...] = (
    {"exp": 2**40}, {"exp": "x"}, {"evt": "other"}, {"aud": "other"}, {"sub": "x" * 1_500}, {"seq": 1}, {"iat": -1},
    {"a": [[[[]]]]}, {"qty_max": 10**9},
)  # fmt: skip
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
REFUSED = frozenset({401, 403})


@dataclass(frozen=True)
class Credential:
    """A valid credential, and a request that it opens. `cookie`: the name of the cookie, if it is sent as one.
    `limited`: too many wrong ones are refused by 429.
    """

    name: str
    text: str
    path: str
    cookie: str = ""
    limited: bool = False

    def headers(self, text: str) -> dict[str, str]:
        return {"cookie": f"{self.cookie}={text}"} if self.cookie else bearer(text)


def mutations(text: str, random: Random) -> Iterator[str]:
    """Every single character replaced, removed and doubled, every truncation, and tricks of tokens."""
    for at in range(len(text)):
        other = random.choice(ALPHABET.replace(text[at], ""))
        yield text[:at] + other + text[at + 1 :]
        yield text[:at] + text[at + 1 :]
        yield text[:at] + text[at] + text[at:]
        yield text[:at]
        yield text[:at] + text[at].swapcase() + text[at + 1 :]
    yield from (text + end for end in ("=", "==", ".", ".x", "A", "\xff", "/", "%00"))
    yield from (
        text * 2,
        text * 40,
        f"{text},{text}",
        text.replace(".", ".."),
        text.replace("-", "+").replace("_", "/"),
    )
    yield from _parts_changed(text, random)


def _parts_changed(text: str, random: Random) -> Iterator[str]:
    """Other headers, claims and key ids in front of the same signature, and parts in another order or empty."""
    parts = text.split(".")
    if len(parts) < 2:
        return
    for at in range(len(parts)):
        yield ".".join([*parts[:at], "", *parts[at + 1 :]])
        yield ".".join([*parts[:at], "x" * 3_000, *parts[at + 1 :]])
    shuffled = random.sample(parts, len(parts))
    if shuffled != parts:
        yield ".".join(shuffled)
    for changes in HEADERS:
        for header in _changed_json(parts[0], changes):
            yield ".".join([header, *parts[1:]])
            yield ".".join([header, *parts[1:-1], ""])
            yield ".".join([header, *parts[1:-1], _hs256(f"{header}.{parts[1]}", b"")])
    for changes in CLAIMS:
        for claims in _changed_json(parts[1], changes):
            yield ".".join([parts[0], claims, *parts[2:]])


def _changed_json(part: str, changes: Mapping[str, Any]) -> Iterator[str]:
    try:
        value = json.loads(base64.urlsafe_b64decode(part + "=="))
    except ValueError:
        return
    if isinstance(value, dict) and {**value, **changes} != value:
        yield base64.urlsafe_b64encode(orjson.dumps({**value, **changes})).rstrip(b"=").decode()


def _hs256(signed: str, key: bytes) -> str:
    return base64.urlsafe_b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).rstrip(b"=").decode()


class ChangedCredentials:
    """Sends changed credentials to one suite."""

    def __init__(self, suite: RunningSuite, found: Findings, random: Random, client: HttpClient) -> None:
        self._suite, self._found, self._random, self._client = suite, found, random, client

    async def send_all(self, credentials: list[Credential], *, seconds: float) -> None:
        """Each credential unchanged, then changes of all of them in a random order for so many seconds."""
        until_s = time.monotonic() + seconds
        for credential in credentials:
            answer = await self._get(credential, credential.text)
            if answer is None or answer.status_code != 200:
                self._found.add(credential.name, "the unchanged credential is refused", repr(answer)[:500])
        changed = [
            (each, text) for each in credentials for text in mutations(each.text, self._random) if text != each.text
        ]
        self._random.shuffle(changed)
        for credential, text in changed:
            if time.monotonic() > until_s:
                return
            if not credential.cookie or not any(character in text for character in ';", \xff'):
                self._judge(credential, text, await self._get(credential, text))

    def _judge(self, credential: Credential, text: str, answer: HttpResponse | None) -> None:
        self._found.count("mutated tokens")
        if answer is None:
            self._found.add(credential.name, "no answer", text)
        elif answer.status_code not in REFUSED | ({429} if credential.limited else set()):
            fault = f"a changed credential is answered {answer.status_code}"
            self._found.add(credential.name, fault, f"{text} -> {answer.content[:200]!r}")

    async def _get(self, credential: Credential, text: str) -> HttpResponse | None:
        try:
            return await self._client.request(
                "GET", self._suite.url + credential.path, headers=credential.headers(text), timeout=20
            )
        except (ConnectionLost, TimeoutError):
            return None


async def credentials_of(suite: RunningSuite, browser: httpx.AsyncClient, sale: Sale) -> list[Credential]:
    """One of each kind, and a path that it opens."""
    event_id, reference, fan = sale.event_id, sale.known["reference"][0], sale.fan
    signed_in = await browser.post("/console/session", json={"key": KEYS["viewer"]})
    session = signed_in.cookies[SESSION_COOKIE] if SESSION_COOKIE in signed_in.cookies else _cookie_of(signed_in)
    room, status, hold = (
        f"/admin/events/{event_id}/room",
        f"/events/{event_id}/queue/status",
        sale.known["reservation_id"][0],
    )
    token, admission = str(fan.queue_token), str(fan.admission)
    return [
        Credential("queue token", token, status),
        Credential("queue cookie", token, status, f"onsale_queue_{event_id}"),
        Credential("pass", admission, f"/events/{event_id}/reservations/{hold}"),
        Credential("pass cookie", admission, f"/events/{event_id}/reservations/{hold}", f"onsale_pass_{event_id}"),
        Credential("order token", sale.order_token, f"/orders/{reference}"),
        Credential("order cookie", sale.order_token, f"/orders/{reference}", f"onsale_order_{reference}"),
        Credential("admin key", KEYS["admin"], room, limited=True),
        Credential("operator's session", session, room, SESSION_COOKIE),
        Credential("operator's session as bearer", session, room, limited=True),
        Credential("user's JWT", jwt_by_secret("ada"), "/orders"),
    ]


def _cookie_of(answer: httpx.Response) -> str:
    return answer.headers["set-cookie"].partition("=")[2].partition(";")[0]
