"""Batches joins: fans who arrive while a batch is under way join in the next one.

A batch keeps its id when it is retried, so numbers are allocated to it once. A fan who joins over several connections
is one member of the batch.
"""

import asyncio
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from services.gateway.metrics import JOINS
from services.gateway.problems import SignInNeeded
from services.gateway.tuning import Tuning
from services.gateway.waiting_line.cache import LineCache
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.concurrency.coalescing import KeyedBatches
from shared.contracts.queue import BATCH_MAX, JoinAnswer, JoinBatch, Joined, JoinRequest, PlaceState, QueueClient
from shared.contracts.room_options import lane_of
from shared.errors.problems import Problem, RoomClosed, SoldOut, Unavailable, named


class Place(NamedTuple):
    """A place in the line, and whether its holder had it before."""

    epoch: int
    lane: int
    join_seq: int
    status: PlaceState
    known: bool


class JoinBatcher:
    """Joins fans to lines, one batch per event at a time."""

    def __init__(self, queue: QueueClient, line_cache: LineCache, tuning: Tuning) -> None:
        self._queue, self._line_cache = queue, line_cache
        self._batches: KeyedBatches[str, JoinRequest, Place] = KeyedBatches(
            self._send,
            name="gateway.joins",
            batch_max=BATCH_MAX,
            waiting_max=tuning.joins_waiting_max,
            in_flight_max=1,  # one large batch costs half of two small ones
        )

    def join(
        self, line: LineSnapshot, fan: JoinRequest, claims: Mapping[str, Any] | None = None
    ) -> "asyncio.Future[Place]":
        """The fan's place in this line, in the lane that their code or verified claims open. Raises `UnknownEvent`,
        `SignInNeeded`, `LineFull`, `RoomClosed`, `SoldOut`, `UnknownLane`, `Overloaded`, `Unavailable`, or the problem
        of a feature.
        """
        if line.frame.options.entry.signed_in_only and fan.user_id is None and not fan.may_be_known:
            raise SignInNeeded  # the queue refuses them too; whether a known fan has a place only the queue knows
        lane = lane_of(claims, line.frame.options.lanes)
        if lane:
            fan = fan.model_copy(update={"lane": lane})
        return self._batches.enqueue(line.frame.event_id, fan)

    async def _send(self, event_id: str, fans: list[JoinRequest]) -> Sequence[Place | Problem]:
        members = list({fan.holder: fan for fan in fans}.values())
        answer = await self._send_with_retry(JoinBatch(event_id=event_id, batch_id=uuid.uuid4().hex, joins=members))
        self._line_cache.store(answer.frame, source="join")
        for word, fans_n in Counter(joined.word for joined in answer.joined).items():
            JOINS.labels(word).inc(fans_n)
        by_holder = dict(zip((fan.holder for fan in members), answer.joined, strict=True))
        new = {holder for holder, joined in by_holder.items() if joined.word == "joined"}
        places: list[Place | Problem] = []
        for fan in fans:
            places.append(_place_or_problem(answer.epoch, by_holder[fan.holder], known=fan.holder not in new))
            new.discard(fan.holder)  # for a second connection of the same fan the place is known
        return places

    async def _send_with_retry(self, batch: JoinBatch) -> JoinAnswer:
        try:
            return await self._queue.join(batch)
        except Unavailable:
            return await self._queue.join(batch)

    async def close(self) -> None:
        await self._batches.close()


def _place_or_problem(epoch: int, joined: Joined, *, known: bool) -> Place | Problem:
    if joined.word in ("joined", "known"):
        return Place(epoch=epoch, lane=joined.lane, join_seq=joined.join_seq, status=joined.status, known=known)
    if joined.word == "sold-out":
        return SoldOut("All tickets are sold.", status=410)
    return RoomClosed() if joined.word == "closed" else named(joined.word)
