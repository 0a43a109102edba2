"""The event log in NATS JetStream: a stream for each source, whose relay is its only writer at a time.

A message names the number it must follow. If one is lost on its way, those after it are refused with it, so the order
stays while a cluster changes its leader; and a repetition is recognised by the id of the event.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, PubAck, StreamConfig, StreamInfo
from nats.js.errors import NotFoundError

from shared.messaging.log import PUBLISH_S, START, Entry, LogAway, Told

ASK_S, RECONNECT_S = 2.0, 0.5
READER_FORGOTTEN_S = 60.0
REPLICAS = 3
AWAY = (NatsError, TimeoutError, OSError)


@dataclass
class _Cursor:
    """How far a reader of a stream has come; the server knows it too, and holds nothing else for it."""

    pulled: JetStreamContext.PullSubscription
    made: str
    position: str
    delivered: int = 0


class JetStream:
    """Positions are the age of a stream and a number in it: a stream that was made anew is read from its beginning."""

    def __init__(
        self, servers: Sequence[str], *, user: str | None, password: str | None, kept_s: int, replicas: int
    ) -> None:
        self._servers = [f"nats://{server}" for server in servers]
        self._credentials = {} if user is None else {"user": user, "password": password}
        self._kept_s, self._replicas = kept_s, replicas or (REPLICAS if len(servers) >= REPLICAS else 1)
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._connecting = asyncio.Lock()
        self._last: dict[str, int] = {}
        self._cursors: dict[str, _Cursor] = {}

    async def publish(self, source: str, batch: Sequence[Told]) -> None:
        left = list(batch)
        try:
            async with asyncio.timeout(PUBLISH_S):
                js = await self._connected()
                while left:
                    left = left[await self._add(js, source, left) :]
        except AWAY as away:
            raise LogAway(f"NATS takes nothing: {str(away) or away!r}") from away

    async def _add(self, js: JetStreamContext, source: str, batch: Sequence[Told]) -> int:
        """How many from the beginning are in the stream now, at least one. What was there already moves the numbers on
        which the rest was built, and the rest is refused.
        """
        last = self._last.pop(source, None)
        if last is None:
            last = (await self._stream(js, source)).state.last_seq
        outcomes = await asyncio.gather(
            *(self._tell(js, source, told, after=last + place) for place, told in enumerate(batch)),
            return_exceptions=True,
        )
        if isinstance(outcomes[0], BaseException):
            raise outcomes[0]
        taken = sum(1 for _ in takewhile(lambda outcome: isinstance(outcome, PubAck), outcomes))
        if isinstance(newest := outcomes[-1], PubAck) and newest.seq == last + len(batch):
            self._last[source] = newest.seq
        return taken

    async def _tell(self, js: JetStreamContext, source: str, told: Told, *, after: int) -> PubAck:
        subject, body = f"onsale.{source}.{told.event_id}.{told.type}", told.body.encode()
        headers = {"Nats-Msg-Id": told.id, "Nats-Expected-Last-Sequence": str(after)}
        return await js.publish(subject, body, timeout=ASK_S, headers=headers)

    async def streams(self, source: str) -> list[str]:
        return [source]

    async def read(self, positions: Mapping[str, str], *, count: int, wait_s: float) -> list[Entry]:
        try:
            js = await self._connected()
            batches = await asyncio.gather(*(self._read(js, *point, count, wait_s) for point in positions.items()))
        except AWAY as away:
            raise LogAway(f"NATS gives nothing: {str(away) or away!r}") from away
        return [entry for batch in batches for entry in batch]

    async def _read(self, js: JetStreamContext, source: str, position: str, count: int, wait_s: float) -> list[Entry]:
        cursor = self._cursors.pop(source, None)
        if cursor is not None and cursor.position != position:
            await cursor.pulled.unsubscribe()
            cursor = None
        cursor = cursor or await self._cursor(js, source, position)
        try:
            entries = await _next(cursor, source, count, wait_s)
        except BaseException:
            with suppress(*AWAY):
                await cursor.pulled.unsubscribe()
            raise
        self._cursors[source] = cursor
        return entries

    async def _cursor(self, js: JetStreamContext, source: str, position: str) -> _Cursor:
        """Begins to read after `position`."""
        info = await self._stream(js, source)
        assert info.created is not None
        made = f"{info.created.timestamp():.6f}"
        age, _, number = position.rpartition("-")
        after = int(number) if position != START and age == made else 0
        config = ConsumerConfig(
            ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=after + 1,
            inactive_threshold=READER_FORGOTTEN_S, num_replicas=1, mem_storage=True,
        )  # fmt: skip
        pulled = await js.pull_subscribe(_subjects(source), stream=_name(source), config=config)
        return _Cursor(pulled, made, position)

    async def _stream(self, js: JetStreamContext, source: str) -> StreamInfo:
        """The stream as it is; made if it is not there. What an operator has changed about one stays so."""
        try:
            return await js.stream_info(_name(source))
        except NotFoundError:
            config = StreamConfig(
                name=_name(source), subjects=[_subjects(source)], max_age=self._kept_s, num_replicas=self._replicas
            )
            return await js.add_stream(config)

    async def _connected(self) -> JetStreamContext:
        """Nothing is given to a connection that is away: it would be sent who knows when."""
        async with self._connecting:
            if self._client is None or self._js is None:
                options: dict[str, Any] = dict(self._credentials, error_cb=_quiet, name="onsale")
                async with asyncio.timeout(ASK_S):
                    self._client = await nats.connect(
                        self._servers, max_reconnect_attempts=-1, reconnect_time_wait=RECONNECT_S, **options
                    )
                self._js = self._client.jetstream(timeout=ASK_S)
            if not self._client.is_connected:
                raise LogAway("NATS is away")
        return self._js

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


async def _next(cursor: _Cursor, source: str, count: int, wait_s: float) -> list[Entry]:
    """What comes next, without a gap."""
    entries = []
    try:
        for message in await cursor.pulled.fetch(count, timeout=wait_s):
            numbers = message.metadata.sequence
            if numbers.consumer != cursor.delivered + 1:
                raise LogAway(f"something before {numbers.stream} of {source} was lost on its way")
            cursor.delivered, cursor.position = numbers.consumer, f"{cursor.made}-{numbers.stream}"
            entries.append(Entry(source, cursor.position, message.data))
    except TimeoutError:
        await cursor.pulled.consumer_info()  # a server that has forgotten us is silent as well
    return entries


def _name(source: str) -> str:
    return f"ONSALE_{source.upper()}"


def _subjects(source: str) -> str:
    return f"onsale.{source}.>"


async def _quiet(trouble: Exception) -> None:
    """What a connection goes through is told by what fails with it."""
