"""Joining the line: whoever arrives while a batch is on its way rides in the next one.

A batch keeps its id when it is asked again, so numbers are given to it once; a fan who comes over many connections is
one member of it.
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from services.gateway.metrics import JOINS
from services.gateway.problems import CodeUnknown, CodeUsedUp, LineFull, SignInNeeded, UnknownLane
from services.gateway.waiting_line.cache import LineCache
from shared.contracts.lanes import lane_of
from shared.contracts.queue import Join, JoinAnswer, JoinBatch, Joined, PlaceState, QueueClient
from shared.runtime.keyed_batches import Batches
from shared.security.guess_limiter import WrongCodes, WrongCodesOfAddresses
from shared.web.problems import Problem, RoomClosed, SoldOut, Unavailable

WRONG_CODES_BURST_S = 5.0


class Place(NamedTuple):
    """A place in the line, and whether its holder had it before."""

    epoch: int
    lane: int
    join_seq: int
    status: PlaceState
    known: bool


class JoinBatcher:
    """Takes fans into the line."""

    def __init__(
        self,
        queue: QueueClient,
        board: LineCache,
        *,
        waiting_max: int,
        wrong_codes_per_s: float,
        wrong_codes_of_addresses: WrongCodesOfAddresses,
    ) -> None:
        self._queue, self._board = queue, board
        self._wrong_codes = WrongCodes(per_s=wrong_codes_per_s, at_once=wrong_codes_per_s * WRONG_CODES_BURST_S)
        self._of_addresses = wrong_codes_of_addresses
        self._batches: Batches[str, Join, Place] = Batches(
            self._ask,
            name="gateway.joins",
            waiting_max=waiting_max,
            in_flight_max=1,  # one large batch costs half of two
        )

    async def join(
        self, event_id: str, fan: Join, claims: Mapping[str, Any] | None = None, *, address: str | None = None
    ) -> Place:
        """The fan's place, in the lane his code or his verified claims open. Raises `UnknownEvent`, `LineFull`,
        `RoomClosed`, `SoldOut`, `SignInNeeded`, `CodeUnknown`, `CodeUsedUp`, `TooManyWrongCodes`, `Overloaded`,
        `Unavailable`.
        """
        line = await self._board.line(event_id)
        if line.frame.options.entry.signed_in_only and fan.user_id is None and not fan.may_be_known:
            raise SignInNeeded  # the queue would say the same, and of the others only it knows who has a place
        lane = lane_of(claims, line.frame.options.lanes)
        if lane:
            fan = fan.model_copy(update={"lane": lane})
        if fan.code is None:
            return await self._batches.submit(event_id, fan)
        self._wrong_codes.check(event_id)
        self._of_addresses.check(event_id, address)
        try:
            return await self._batches.submit(event_id, fan)
        except CodeUnknown:
            self._wrong_codes.note(event_id)
            self._of_addresses.note(event_id, address)
            raise

    async def _ask(self, event_id: str, fans: list[Join]) -> Sequence[Place | Problem]:
        members = list({fan.holder: fan for fan in fans}.values())
        answer = await self._ask_twice(JoinBatch(event_id=event_id, batch_id=uuid.uuid4().hex, joins=members))
        self._board.take(answer.frame, came_by="joined")
        for word, fans_n in Counter(joined.word for joined in answer.joined).items():
            JOINS.labels(word).inc(fans_n)
        given = dict(zip((fan.holder for fan in members), answer.joined, strict=True))
        new = {holder for holder, joined in given.items() if joined.word == "joined"}
        places: list[Place | Problem] = []
        for fan in fans:
            places.append(_place(answer.epoch, given[fan.holder], known=fan.holder not in new))
            new.discard(fan.holder)  # a second connection of the same fan finds the place taken
        return places

    async def _ask_twice(self, batch: JoinBatch) -> JoinAnswer:
        try:
            return await self._queue.join(batch)
        except Unavailable:
            return await self._queue.join(batch)

    async def close(self) -> None:
        await self._batches.close()


def _place(epoch: int, joined: Joined, *, known: bool) -> Place | Problem:
    if joined.word == "line-full":
        return LineFull()
    if joined.word == "closed":
        return RoomClosed()
    if joined.word == "sold-out":
        return SoldOut("Every ticket has found an owner.", status=410)
    if joined.word == "sign-in-needed":
        return SignInNeeded()
    if joined.word == "code-unknown":
        return CodeUnknown()
    if joined.word == "code-used-up":
        return CodeUsedUp()
    if joined.word == "unknown-lane":
        return UnknownLane()
    return Place(epoch, joined.lane, joined.join_seq, joined.status, known)
