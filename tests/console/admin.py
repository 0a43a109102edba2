"""The admin APIs of queue, inventory and orders as the console sees them: the services' own, over one address that
counts what it is asked and falls silent on command.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.contracts.event_file import EventFile
from tests.support.neighbours import answer_of
from tests.support.running.services import Neighbours

EVENT, FANS = "arena", 3
FILE = EventFile.model_validate({
    "event_id": EVENT, "name": "The Arena", "venue": "A hall", "currency": "EUR", "starts_at": "2027-03-05T19:30:00Z",
    "sections": [{"section_id": "A", "name": "A", "kind": "ga", "capacity": 100, "price_minor": 3000}],
})  # fmt: skip


@dataclass
class Admin:
    """`silent` parts answer late and with nothing. `questions` counts by part and last word of the path; for these,
    `given` has a document of the contract that is answered in place of the service's.
    """

    neighbours: Neighbours
    silent: set[str] = field(default_factory=set)
    questions: Counter[tuple[str, str]] = field(default_factory=Counter)
    given: dict[tuple[str, str], BaseModel] = field(default_factory=dict)
    under_way: Counter[str] = field(default_factory=Counter)
    under_way_max: int = 0
    silent_s: float = 0.9

    async def open(self) -> None:
        """Opens all three services."""
        for service in (self.neighbours.real_queue, self.neighbours.real_inventory, self.neighbours.real_orders):
            await service.open()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        words = Request(scope).url.path.strip("/").split("/")
        part, word = part_of(words), words[-1]
        self.questions[part, word] += 1
        if part in self.silent:
            self.under_way[word] += 1
            self.under_way_max = max(self.under_way_max, self.under_way["flow"])
            await asyncio.sleep(self.silent_s)
            self.under_way[word] -= 1
            await Response(b"", 502)(scope, receive, send)
        elif (part, word) in self.given:
            await answer_of(self.given[part, word])(scope, receive, send)
        else:
            await self._service(part)(scope, receive, send)

    def _service(self, part: str) -> ASGIApp:
        services: dict[str, ASGIApp] = {
            "queue": self.neighbours.queue, "inventory": self.neighbours.inventory, "orders": self.neighbours.orders
        }  # fmt: skip
        return services[part]


def part_of(words: list[str]) -> str:
    """The part that answers a path, as the gateway of a suite sends it on."""
    if words[0] == "payments":
        return "orders"
    if words[0] == "events":
        return "gateway" if "queue" in words else "inventory"
    return "queue" if words[1] == "events" else words[1]
