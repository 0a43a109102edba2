"""The queue's answers about lotteries: public data is cached for a second, proofs are requested once for each place at
a time.
"""

from functools import partial

from shared.concurrency.coalescing import CachedReads, SingleFlight
from shared.contracts.lottery import EntryProof, PublishedLottery
from shared.contracts.queue import LotteryClient, PlaceRef, ProofQuestion
from shared.errors.problems import NoLottery, UnknownEvent
from shared.security.tokens import QueueToken

LOTTERY_TTL_S = 1.0
EVENTS_MAX = 1_000
REQUESTS_MAX = 16
LotteryAnswer = PublishedLottery | NoLottery | UnknownEvent


class LotteryCache:
    """Caches published lotteries; at most `REQUESTS_MAX` requests of each kind are under way."""

    def __init__(self, queue: LotteryClient) -> None:
        self._queue = queue
        self._published: CachedReads[LotteryAnswer] = CachedReads(
            kept_s=LOTTERY_TTL_S, keys_max=EVENTS_MAX, in_flight_max=REQUESTS_MAX
        )
        self._proofs: SingleFlight[EntryProof] = SingleFlight(in_flight_max=REQUESTS_MAX)

    async def published(self, event_id: str, *, known: bool) -> PublishedLottery:
        """`known`: whether the event is. Raises `NoLottery`, `UnknownEvent`, `Overloaded`."""
        answer = await self._published.get(event_id, partial(self._fetch, event_id), known=known)
        if isinstance(answer, Exception):
            raise type(answer)(answer.detail)
        return answer

    async def _fetch(self, event_id: str) -> LotteryAnswer:
        try:
            return await self._queue.published(event_id)
        except (NoLottery, UnknownEvent) as problem:
            return problem

    async def prove(self, token: QueueToken) -> EntryProof:
        """Raises `NotEntered`, `StaleEpoch`, `Overloaded`."""
        place = PlaceRef(lane=token.lane, join_seq=token.join_seq, holder=token.holder)
        question = ProofQuestion(event_id=token.event_id, epoch=token.epoch, place=place)
        return await self._proofs.run(question.model_dump_json(), partial(self._queue.prove, question))

    async def close(self) -> None:
        """Cancels pending requests."""
        await self._published.close()
        await self._proofs.close()
