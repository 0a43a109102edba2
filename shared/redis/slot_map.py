"""Which process of a Redis or Valkey cluster holds which keys, and a client of each.

The map is learnt again, at most ten times a second, when somebody says that a key is elsewhere or does not answer; all
primaries are asked at once, so that one that is frozen keeps nobody waiting.
"""

import asyncio
import bisect
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, ClusterDownError, MovedError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.redis.url import Address

REDIS_AWAY = (RedisConnectionError, RedisTimeoutError, OSError)
ON_ITS_WAY = (ClusterDownError, TryAgainError)
LEARN_EVERY_S = 0.1


class Shards:
    """The map of a cluster, as one of its processes told it last."""

    def __init__(self, seeds: Sequence[Address], client_at: Callable[[Address], Redis]) -> None:
        self._seeds, self._client_at = seeds, client_at
        self._clients: dict[Address, Redis] = {}
        self._lasts: list[int] = []
        self._ranges: list[tuple[int, Address]] = []
        self._replicas: set[Address] = set()
        self._moved: dict[int, Address] = {}
        self._learning: asyncio.Task[None] | None = None
        self._learnt_s = float("-inf")
        self._doubtful = True

    async def near(self, key: str | bytes) -> Redis:
        """The client of the process that holds this key. Raises `ConnectionError` if none is known."""
        if self._doubtful:
            await self._learn()
        slot = key_slot(key.encode() if isinstance(key, str) else key)
        if slot in self._moved:
            return self.client(self._moved[slot])
        at = bisect.bisect_left(self._lasts, slot)
        if at == len(self._ranges) or slot < self._ranges[at][0]:
            self._doubtful = True
            raise RedisConnectionError("Nobody in the cluster holds this slot.")
        return self.client(self._ranges[at][1])

    async def primaries(self) -> list[Redis]:
        """A client of every primary, in no order."""
        if self._doubtful:
            await self._learn()
        found = [self.client(address) for address in {address for _, address in self._ranges}]
        random.shuffle(found)
        return found

    def replicas(self) -> list[Redis]:
        """A client of every replica that was on the map when it was learnt."""
        return [self.client(address) for address in self._replicas]

    def doubt(self) -> None:
        """Somebody did not find what the map says: it is learnt again before its next use."""
        self._doubtful = True

    def moved(self, told: MovedError, by: Redis) -> Redis:
        """The client of the process that a slot has moved to, as one that had it says before the others know."""
        self._doubtful = True
        self._moved[told.slot_id] = address((told.host, told.port), address_of(by))
        return self.client(self._moved[told.slot_id])

    def client(self, address: Address) -> Redis:
        """The one client of a process."""
        if address not in self._clients:
            self._clients[address] = self._client_at(address)
        return self._clients[address]

    async def aclose(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.aclose() for client in clients))

    async def _learn(self) -> None:
        if asyncio.get_running_loop().time() - self._learnt_s < LEARN_EVERY_S:
            return
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(self._ask_around())
        await asyncio.shield(self._learning)

    async def _ask_around(self) -> None:
        """Primaries and seeds first; replicas when none of those is left."""
        known, why = {address for _, address in self._ranges}, list[Exception]()
        for asked in ({*known, *self._seeds}, self._replicas - known):
            answer = await self._first_answer(asked, why)
            if answer is not None:
                await self._take(*answer)
                return
        raise RedisConnectionError(f"No process of the cluster answers: {why[0]}") from why[0]

    async def _first_answer(self, asked: Iterable[Address], why: list[Exception]) -> tuple[Address, Any] | None:
        """Nothing if nobody answers; then `why` says why."""
        tasks = [asyncio.create_task(self._slots(address)) for address in asked]
        try:
            for answer in asyncio.as_completed(tasks):
                try:
                    return await answer
                except AuthenticationError:
                    raise  # nobody else will let us in
                except (*REDIS_AWAY, *ON_ITS_WAY) as away:
                    why.append(away)
            return None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _slots(self, address: Address) -> tuple[Address, Any]:
        return address, await self.client(address).execute_command("CLUSTER SLOTS")

    async def _take(self, asked: Address, slots: Any) -> None:
        """The map as one process told it; whoever is no longer on it is let go."""
        rows = sorted((row[0], row[1], [address(node, asked) for node in row[2:]]) for row in slots)
        self._moved = {}
        self._lasts = [last for _, last, _ in rows]
        self._ranges = [(first, nodes[0]) for first, _, nodes in rows]
        self._replicas = {replica for _, _, nodes in rows for replica in nodes[1:]}
        self._learnt_s, self._doubtful = asyncio.get_running_loop().time(), not rows
        on_it = {*self._seeds, *(node for _, _, nodes in rows for node in nodes)}
        gone = [self._clients.pop(address) for address in self._clients.keys() - on_it]
        await asyncio.gather(*(client.aclose() for client in gone), return_exceptions=True)


def address(node: Sequence[Any], asked: Address) -> Address:
    """A process that does not know its own name is where it was asked."""
    host = node[0].decode() if isinstance(node[0], bytes) else node[0]
    return (asked[0] if host in (None, "", "?") else str(host)), int(node[1])


def address_of(client: Redis) -> Address:
    """Where a client of one process connects to; of sentinels' primary, where it was found last."""
    pool = client.connection_pool
    host, port = getattr(pool, "master_address", None) or (
        pool.connection_kwargs.get("host", "localhost"),
        pool.connection_kwargs.get("port", 6379),
    )
    return str(host), int(port)
