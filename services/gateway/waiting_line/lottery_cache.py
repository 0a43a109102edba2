"""What the queue says of lotteries: asked once a second for all who want to know, and one by one for proofs."""

import asyncio
import time
from collections import OrderedDict

from shared.contracts.lottery import EntryProof, LotteryClient, ProofQuestion, PublishedLottery
from shared.contracts.queue import PlaceRef
from shared.security.tokens import QueueToken
from shared.web.problems import NoLottery, Overloaded, UnknownEvent

REMEMBERED_S = 1.0
EVENTS_MAX = 1_000
ASKS_MAX = 16
Told = PublishedLottery | NoLottery | UnknownEvent


class LotteryCache:
    """Remembers what is published for a second; nobody proves more than a few entries at a time."""

    def __init__(self, queue: LotteryClient) -> None:
        self._queue = queue
        self._told: OrderedDict[str, tuple[float, Told]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Told]] = {}
        self._proving = 0

    async def published(self, event_id: str) -> PublishedLottery:
        """Raises `NoLottery`, `UnknownEvent`, `Overloaded`."""
        until_s, told = self._told.get(event_id, (0.0, None))
        if told is None or time.monotonic() >= until_s:
            told = await self._ask_once(event_id)
        if isinstance(told, Exception):
            raise type(told)(told.detail)
        return told

    async def _ask_once(self, event_id: str) -> Told:
        task = self._asking.get(event_id)
        if task is None:
            if len(self._asking) >= ASKS_MAX:
                raise Overloaded
            task = self._asking[event_id] = asyncio.create_task(self._ask(event_id))
            task.add_done_callback(lambda _: self._asking.pop(event_id, None))
        return await asyncio.shield(task)

    async def _ask(self, event_id: str) -> Told:
        told: Told
        try:
            told = await self._queue.published(event_id)
        except (NoLottery, UnknownEvent) as none:
            told = none
        self._told[event_id] = time.monotonic() + REMEMBERED_S, told
        self._told.move_to_end(event_id)
        if len(self._told) > EVENTS_MAX:
            self._told.popitem(last=False)
        return told

    async def prove(self, token: QueueToken) -> EntryProof:
        """Raises `NotEntered`, `StaleEpoch`, `Overloaded`."""
        if self._proving >= ASKS_MAX:
            raise Overloaded
        place = PlaceRef(lane=token.lane, join_seq=token.join_seq, holder=token.holder)
        self._proving += 1
        try:
            return await self._queue.prove(ProofQuestion(event_id=token.event_id, epoch=token.epoch, place=place))
        finally:
            self._proving -= 1

    async def close(self) -> None:
        """Ends the questions nobody needs any more."""
        for task in list(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
