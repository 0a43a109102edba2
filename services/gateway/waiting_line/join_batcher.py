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
from services.gateway.problems import CodeUnknown, CodeUsedUp, LineFull, SignInNeeded, UnknownLane
from services.gateway.tuning import Tuning
from services.gateway.waiting_line.cache import LineCache
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.concurrency.coalescing import KeyedBatches
from shared.contracts.queue import BATCH_MAX, JoinAnswer, JoinBatch, Joined, JoinRequest, PlaceState, QueueClient
from shared.contracts.room_options import lane_of
from shared.errors.problems import Problem, RoomClosed, SoldOut, Unavailable
from shared.security.limits import AddressGuessLimiter, GuessLimiter

WRONG_CODES_BURST_S = 5.0
REFUSALS: Mapping[str, type[Problem]] = {
    "line-full": LineFull,
    "closed": RoomClosed,
    "sign-in-needed": SignInNeeded,
    "code-unknown": CodeUnknown,
    "code-used-up": CodeUsedUp,
    "unknown-lane": UnknownLane,
}


class Place(NamedTuple):
    """A place in the line, and whether its holder had it before."""

    epoch: int
    lane: int
    join_seq: int
    status: PlaceState
    known: bool


class JoinBatcher:
    """Joins fans to lines, one batch per event at a time."""

    def __init__(self, queue: QueueClient, line_cache: LineCache, tuning: Tuning, *, processes: int = 1) -> None:
        self._queue, self._line_cache = queue, line_cache
        per_s = tuning.wrong_codes_per_s
        self._guesses = GuessLimiter(per_s=per_s, at_once=per_s * WRONG_CODES_BURST_S, shared_by=processes)
        self._guesses_of_addresses = AddressGuessLimiter(shared_by=processes)
        self._batches: KeyedBatches[str, JoinRequest, Place] = KeyedBatches(
            self._send,
            name="gateway.joins",
            batch_max=BATCH_MAX,
            waiting_max=tuning.joins_waiting_max,
            in_flight_max=1,  # one large batch costs half of two small ones
        )

    async def join(
        self, event_id: str, fan: JoinRequest, claims: Mapping[str, Any] | None = None, *, address: str | None = None
    ) -> Place:
        """The fan's place, in the lane that their code or verified claims open. Raises `UnknownEvent`, `LineFull`,
        `RoomClosed`, `SoldOut`, `SignInNeeded`, `CodeUnknown`, `CodeUsedUp`, `TooManyWrongCodes`, `Overloaded`,
        `Unavailable`.
        """
        line = await self._line_cache.line(event_id)
        if fan.code is None:
            return await self.enqueue(line, fan, claims)
        async with (
            self._guesses_of_addresses.guess(event_id, address) as guess,
            self._guesses.guess(event_id, guess),
        ):
            try:
                return await self.enqueue(line, fan, claims)
            except CodeUnknown:
                guess.wrong = True
                raise

    def enqueue(
        self, line: LineSnapshot, fan: JoinRequest, claims: Mapping[str, Any] | None = None
    ) -> "asyncio.Future[Place]":
        """As `join`, for a fan without a code; the line is that of the event."""
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
    if joined.word == "sold-out":
        return SoldOut("All tickets are sold.", status=410)
    if joined.word in REFUSALS:
        return REFUSALS[joined.word]()
    return Place(epoch=epoch, lane=joined.lane, join_seq=joined.join_seq, status=joined.status, known=known)
