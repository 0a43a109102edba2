"""Maps the slots of a Redis or Valkey cluster to its processes, with one client per process.

The map is refreshed, at most ten times a second, when a process redirects a command or does not answer. All known
primaries are asked at once, so that a frozen one delays nobody.
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

from shared.concurrency.coalescing import SingleFlight
from shared.concurrency.tasks import stop
from shared.redis.url import Address

REDIS_AWAY = (RedisConnectionError, RedisTimeoutError, OSError)
RESHARDING = (ClusterDownError, TryAgainError)
REFRESH_INTERVAL_S = 0.1


class SlotMap:
    """The map of a cluster, as one of its processes last reported it."""

    def __init__(self, seeds: Sequence[Address], client_at: Callable[[Address], Redis]) -> None:
        self._seeds, self._client_at = seeds, client_at
        self._clients: dict[Address, Redis] = {}
        self._lasts: list[int] = []
        self._ranges: list[tuple[int, Address]] = []
        self._replicas: set[Address] = set()
        self._moved: dict[int, Address] = {}
        self._fetches: SingleFlight[None] = SingleFlight()
        self._refreshed_s = float("-inf")
        self._stale = True

    async def node_for_key(self, key: str | bytes) -> Redis:
        """The client of the process that holds this key. Raises `ConnectionError` if none is known."""
        if self._stale:
            await self._refresh()
        slot = key_slot(key.encode() if isinstance(key, str) else key)
        if slot in self._moved:
            return self.client(self._moved[slot])
        at = bisect.bisect_left(self._lasts, slot)
        if at == len(self._ranges) or slot < self._ranges[at][0]:
            self._stale = True
            raise RedisConnectionError("No process of the cluster holds this slot.")
        return self.client(self._ranges[at][1])

    async def primaries(self) -> list[Redis]:
        """A client of every primary, in no order."""
        if self._stale:
            await self._refresh()
        found = [self.client(address) for address in {address for _, address in self._ranges}]
        random.shuffle(found)
        return found

    def replicas(self) -> list[Redis]:
        """A client of every replica on the map."""
        return [self.client(address) for address in self._replicas]

    def invalidate(self) -> None:
        """Marks the map as out of date: it is refreshed before its next use."""
        self._stale = True

    def follow_move(self, moved: MovedError, by: Redis) -> Redis:
        """The client of the process that a slot has moved to, as its former process reports it."""
        self._stale = True
        self._moved[moved.slot_id] = address((moved.host, moved.port), address_of(by))
        return self.client(self._moved[moved.slot_id])

    def client(self, address: Address) -> Redis:
        """The client of a process, created at its first use."""
        if address not in self._clients:
            self._clients[address] = self._client_at(address)
        return self._clients[address]

    async def aclose(self) -> None:
        await self._fetches.close()
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.aclose() for client in clients))

    async def _refresh(self) -> None:
        if asyncio.get_running_loop().time() - self._refreshed_s < REFRESH_INTERVAL_S:
            return
        await self._fetches.run("slots", self._fetch)

    async def _fetch(self) -> None:
        """Asks primaries and seeds first, replicas if none of those answers."""
        known, errors = {address for _, address in self._ranges}, list[Exception]()
        for addresses in ({*known, *self._seeds}, self._replicas - known):
            answer = await self._first_answer(addresses, errors)
            if answer is not None:
                await self._apply(*answer)
                return
        raise RedisConnectionError(f"No process of the cluster answers: {errors[0]}") from errors[0]

    async def _first_answer(self, addresses: Iterable[Address], errors: list[Exception]) -> tuple[Address, Any] | None:
        """The first map received; `None` if no process answers, with the reasons in `errors`."""
        tasks = [asyncio.create_task(self._slots(address)) for address in addresses]
        try:
            for answer in asyncio.as_completed(tasks):
                try:
                    return await answer
                except AuthenticationError:
                    raise  # every process would reject us
                except (*REDIS_AWAY, *RESHARDING) as away:
                    errors.append(away)
            return None
        finally:
            await stop(tasks)

    async def _slots(self, address: Address) -> tuple[Address, Any]:
        return address, await self.client(address).execute_command("CLUSTER SLOTS")

    async def _apply(self, reporter: Address, slots: Any) -> None:
        """Replaces the map by the one that `reporter` sent; closes the clients of processes that left."""
        rows = sorted((row[0], row[1], [address(node, reporter) for node in row[2:]]) for row in slots)
        self._moved = {}
        self._lasts = [last for _, last, _ in rows]
        self._ranges = [(first, nodes[0]) for first, _, nodes in rows]
        self._replicas = {replica for _, _, nodes in rows for replica in nodes[1:]}
        self._refreshed_s, self._stale = asyncio.get_running_loop().time(), not rows
        on_map = {*self._seeds, *(node for _, _, nodes in rows for node in nodes)}
        gone = [self._clients.pop(address) for address in self._clients.keys() - on_map]
        await asyncio.gather(*(client.aclose() for client in gone), return_exceptions=True)


def address(node: Sequence[Any], reporter: Address) -> Address:
    """The address of a node; one that does not know its own host has the host of the reporter."""
    host = node[0].decode() if isinstance(node[0], bytes) else node[0]
    return (reporter[0] if host in (None, "", "?") else str(host)), int(node[1])


def address_of(client: Redis) -> Address:
    """The address that a client connects to; with sentinels, the last known one of the primary."""
    pool = client.connection_pool
    host, port = getattr(pool, "master_address", None) or (
        pool.connection_kwargs.get("host", "localhost"),
        pool.connection_kwargs.get("port", 6379),
    )
    return str(host), int(port)
