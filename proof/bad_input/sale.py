"""Running sales for requests of every kind: who may send them, and the ids that exist.

Fans and operators get different events: operators close, reset and rebuild theirs.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx

from onsale.client import Fan
from shared.security.tokens import order_cookie, pass_cookie, queue_cookie
from tests.support.providers.identity_provider import jwt_by_secret
from tests.support.running.suite import RunningSuite, bearer, fan_of


@dataclass
class Findings:
    """`faults` has an example for each fault; a fault that was found again is one."""

    counts: dict[str, int] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def add(self, where: str, fault: str, example: str) -> None:
        if (name := f"{where}: {fault}") not in self.faults:
            self.faults[name] = example
            print(f"  found: {name}", flush=True)

    def sentences(self, command: str) -> list[str]:
        return [f"{fault}. {example} Again: {command}" for fault, example in self.faults.items()]


KEYS = {role: f"a key of the role {role} in tests".replace(" ", "-") for role in ("viewer", "operator", "admin")}
FOR_EVERYBODY = {
    "ONSALE_ADMIN_KEY": KEYS["admin"],
    "ONSALE_ADMIN_KEYS": ",".join(f"{role}:{role}:{key}" for role, key in KEYS.items()),
    "GATEWAY_ADDRESS_JOINS_PER_S": "1000000", "ONSALE_FAN_CALLS_PER_S": "1000000",
}  # fmt: skip
KNOWN_MAX = 40


@dataclass(frozen=True)
class Sender:
    """Somebody who sends requests: the rank of what they hold, and the header fields with it."""

    name: str
    role: str
    headers: Mapping[str, str]


@dataclass
class Sale:
    """One event, what a fan has of it, and ids found in answers by their names."""

    event_id: str
    senders: list[Sender]
    fan: Fan
    order_token: str
    known: dict[str, deque[str]] = field(default_factory=dict)

    def keep(self, name: str, value: object) -> None:
        if isinstance(value, str | int) and not isinstance(value, bool):
            self.known.setdefault(name, deque(maxlen=KNOWN_MAX)).append(str(value))

    def keep_ids(self, answer: Any, names: Iterable[str]) -> None:
        """Every value of one of these names in an answer, at any depth, can be a value of a later request."""
        if isinstance(answer, dict):
            for name, value in answer.items():
                if name in names:
                    self.keep(name, value)
                self.keep_ids(value, names)
        elif isinstance(answer, list):
            for each in answer[:KNOWN_MAX]:
                self.keep_ids(each, names)

    def choose(self, random: Random) -> dict[str, str]:
        """A known id for each name; those of the event itself are always right."""
        return {name: random.choice(values) for name, values in self.known.items()} | {"event_id": self.event_id}


async def sale_for_fans(suite: RunningSuite, browser: httpx.AsyncClient) -> Sale:
    """An event with a fan who waits, one who holds tickets, the order of a third, their cookies, and a user's JWT."""
    sale = await _sale(suite, browser)
    fan, reference = sale.fan, sale.known["reference"][-1]
    waiting = fan_of(browser, sale.event_id)
    await waiting.join()
    cookies = {queue_cookie(sale.event_id): fan.queue_token, pass_cookie(sale.event_id): fan.admission}
    cookies |= {order_cookie(reference): sale.order_token}
    jar = "; ".join(f"{name}={value}" for name, value in cookies.items())
    sale.senders = [
        Sender("nobody", "nobody", {}),
        Sender("waiting fan", "fan", bearer(waiting.queue_token)),
        Sender("fan with pass", "fan", bearer(fan.admission)),
        Sender("fan with order", "fan", bearer(sale.order_token)),
        Sender("fan with cookies", "fan", {"cookie": jar, "origin": suite.url}),
        Sender("user", "fan", bearer(jwt_by_secret("ada"))),
        Sender("operator", "operator", bearer(KEYS["operator"])),
    ]
    return sale


async def sale_for_operators(suite: RunningSuite, browser: httpx.AsyncClient) -> Sale:
    """An event with an order and a hold, for all roles; a fan has no rights here."""
    sale = await _sale(suite, browser)
    sale.senders = [
        Sender("nobody", "nobody", {}), Sender("fan with pass", "fan", bearer(sale.fan.admission)),
        *(Sender(role, role, bearer(key)) for role, key in KEYS.items()),
    ]  # fmt: skip
    return sale


async def _sale(suite: RunningSuite, browser: httpx.AsyncClient) -> Sale:
    event_id = await suite.open_event()
    buyer, fan = await fan_of(browser, event_id).come_in(), await fan_of(browser, event_id).come_in()
    order = await buyer.order(await buyer.hold({"seats": ["A-1-1"]}))
    await buyer.settled(order)  # which ends the buyer's session
    sale = Sale(event_id, [], fan, order["order_token"])
    reservation = await fan.hold({"ga": [{"section_id": "GA1", "quantity": 2}]})
    answer = await browser.get(f"/orders/{order['reference']}/tickets", headers=bearer(order["order_token"]))
    sale.keep_ids(answer.json(), ("ticket_id",))
    for name, value in (("reference", order["reference"]), ("reservation_id", reservation["reservation_id"]),
                        ("section_id", "A"), ("section_id", "GA1"), ("provider", "sandbox"), ("proxy", "nginx"),
                        ("action", "pause"), ("action", "open")):  # fmt: skip
        sale.keep(name, value)
    return sale


async def close_sales(suite: RunningSuite) -> None:
    """Closes their rooms: each open room costs the suite a little all the time."""
    await asyncio.to_thread(suite.close_rooms)
