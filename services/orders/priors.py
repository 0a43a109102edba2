"""What an order meets before it is made: what its idempotency key did earlier, and the reservation it is about.

The ledger and inventory are asked at the same time, once for all requests of the moment; a key that was used is known
although inventory is away.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from services.orders.keys import Known, Question, find
from services.orders.stock import Stock
from shared.contracts.inventory import Reservation
from shared.group_commit import GroupCommit
from shared.postgres import AsyncEngine

BATCH_MAX = 200
WAITING_MAX = 5000
IN_FLIGHT_MAX = 2


class Prior(NamedTuple):
    """`known` wins: with it nobody needs the reservation, which may then be missing."""

    known: Known | None
    reservation: Reservation | None


class Priors:
    """Looks at both. Raises what inventory raised to those alone whose key is new."""

    def __init__(self, engine: AsyncEngine, stock: Stock) -> None:
        self._engine, self._stock = engine.execution_options(isolation_level="AUTOCOMMIT"), stock
        self._group: GroupCommit[tuple[Question, str], Prior] = GroupCommit(
            self._look, name="orders-priors", batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=IN_FLIGHT_MAX
        )
        self.close = self._group.close

    async def look(self, question: Question, reservation_id: str) -> Prior:
        return await self._group.submit((question, reservation_id))

    async def _look(self, asked: list[tuple[Question, str]]) -> Sequence[Prior | BaseException]:
        questions, reservation_ids = (
            [question for question, _ in asked],
            [reservation_id for _, reservation_id in asked],
        )
        known, held = await asyncio.gather(
            find(self._engine, questions), self._stock.read_many(list(reservation_ids)), return_exceptions=True
        )
        if isinstance(known, BaseException):
            raise known
        if isinstance(held, BaseException):
            return [Prior(before, None) if before else held for before in known]
        return [Prior(before, reservation) for before, reservation in zip(known, held, strict=True)]
