"""The event log in NATS JetStream: one stream per source, to which one relay at a time publishes.

Each message names the sequence number it must follow. If one is lost, those after it are rejected, so the order holds
while a cluster changes its leader. A duplicate is recognised by the event's id.
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

from features.event_logs.servers import servers_of
from shared.messaging.log import PUBLISH_S, START, LogEntry, LogUnavailable, PendingEvent
from shared.process.settings import ServiceSettings

TIMEOUT_S, RECONNECT_S = 2.0, 0.5
READER_FORGOTTEN_S = 60.0
REPLICAS = 3
AWAY = (NatsError, TimeoutError, OSError)


@dataclass
class _Cursor:
    """A reader's position in a stream, with the ephemeral consumer that the server keeps for it."""

    subscription: JetStreamContext.PullSubscription
    created: str
    position: str
    delivered: int = 0


class JetStream:
    """A position is a stream's creation time and a sequence number: a recreated stream is read from its beginning."""

    def __init__(self, servers: Sequence[str], *, user: str | None, password: str | None, kept_s: int) -> None:
        self._servers = [f"nats://{server}" for server in servers]
        self._credentials = {} if user is None else {"user": user, "password": password}
        self._kept_s, self._replicas = kept_s, REPLICAS if len(servers) >= REPLICAS else 1
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._connecting = asyncio.Lock()
        self._last: dict[str, int] = {}
        self._cursors: dict[str, _Cursor] = {}

    async def publish(self, source: str, batch: Sequence[PendingEvent]) -> None:
        left = list(batch)
        try:
            async with asyncio.timeout(PUBLISH_S):
                js = await self._connected()
                while left:
                    left = left[await self._add(js, source, left) :]
        except AWAY as away:
            raise LogUnavailable(f"NATS does not accept events: {str(away) or away!r}") from away

    async def _add(self, js: JetStreamContext, source: str, batch: Sequence[PendingEvent]) -> int:
        """Publishes the batch; the number of leading events that are in the stream now, at least one.

        A duplicate gets the number it has already, so the numbers expected of the rest are wrong and it is rejected.
        """
        last = self._last.pop(source, None)
        if last is None:
            last = (await self._stream(js, source)).state.last_seq
        outcomes = await asyncio.gather(
            *(self._publish_one(js, source, event, after=last + i) for i, event in enumerate(batch)),
            return_exceptions=True,
        )
        if isinstance(outcomes[0], BaseException):
            raise outcomes[0]
        taken = sum(1 for _ in takewhile(lambda outcome: isinstance(outcome, PubAck), outcomes))
        if isinstance(newest := outcomes[-1], PubAck) and newest.seq == last + len(batch):
            self._last[source] = newest.seq
        return taken

    async def _publish_one(self, js: JetStreamContext, source: str, event: PendingEvent, *, after: int) -> PubAck:
        subject, body = f"onsale.{source}.{event.event_id}.{event.type}", event.body.encode()
        headers = {"Nats-Msg-Id": event.id, "Nats-Expected-Last-Sequence": str(after)}
        return await js.publish(subject, body, timeout=TIMEOUT_S, headers=headers)

    async def streams(self, source: str) -> list[str]:
        return [source]

    async def read(self, positions: Mapping[str, str], *, count: int, wait_s: float) -> list[LogEntry]:
        try:
            js = await self._connected()
            batches = await asyncio.gather(*(self._read(js, *point, count, wait_s) for point in positions.items()))
        except AWAY as away:
            raise LogUnavailable(f"NATS does not deliver events: {str(away) or away!r}") from away
        return [entry for batch in batches for entry in batch]

    async def _read(
        self, js: JetStreamContext, source: str, position: str, count: int, wait_s: float
    ) -> list[LogEntry]:
        cursor = self._cursors.pop(source, None)
        if cursor is not None and cursor.position != position:
            await cursor.subscription.unsubscribe()
            cursor = None
        cursor = cursor or await self._cursor(js, source, position)
        try:
            entries = await _next(cursor, source, count, wait_s)
        except BaseException:
            with suppress(*AWAY):
                await cursor.subscription.unsubscribe()
            raise
        self._cursors[source] = cursor
        return entries

    async def _cursor(self, js: JetStreamContext, source: str, position: str) -> _Cursor:
        """A consumer that reads after `position`."""
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
        """The stream, created if it is missing; one that an operator has configured is left as it is."""
        try:
            return await js.stream_info(_name(source))
        except NotFoundError:
            config = StreamConfig(
                name=_name(source), subjects=[_subjects(source)], max_age=self._kept_s, num_replicas=self._replicas
            )
            return await js.add_stream(config)

    async def _connected(self) -> JetStreamContext:
        """The JetStream context. Raises `LogUnavailable` while disconnected: the client would send later, unnoticed."""
        async with self._connecting:
            if self._client is None or self._js is None:
                options: dict[str, Any] = dict(self._credentials, error_cb=_quiet, name="onsale")
                async with asyncio.timeout(TIMEOUT_S):
                    self._client = await nats.connect(
                        self._servers, max_reconnect_attempts=-1, reconnect_time_wait=RECONNECT_S, **options
                    )
                self._js = self._client.jetstream(timeout=TIMEOUT_S)
            if not self._client.is_connected:
                raise LogUnavailable("NATS is not connected")
        return self._js

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


def open_jetstream(url: str, settings: ServiceSettings) -> JetStream:
    user, password, servers = servers_of(url, 4222)
    return JetStream(servers, user=user, password=password, kept_s=settings.event_log_kept_h * 3600)


async def _next(cursor: _Cursor, source: str, count: int, wait_s: float) -> list[LogEntry]:
    """The next entries. Raises `LogUnavailable` if one is missing."""
    entries = []
    try:
        for message in await cursor.subscription.fetch(count, timeout=wait_s):
            numbers = message.metadata.sequence
            if numbers.consumer != cursor.delivered + 1:
                raise LogUnavailable(f"a message before {numbers.stream} of {source} was lost in delivery")
            cursor.delivered, cursor.position = numbers.consumer, f"{cursor.created}-{numbers.stream}"
            entries.append(LogEntry(source, cursor.position, message.data))
    except TimeoutError:
        await cursor.subscription.consumer_info()  # raises if the server has dropped the consumer, which is silent too
    return entries


def _name(source: str) -> str:
    return f"ONSALE_{source.upper()}"


def _subjects(source: str) -> str:
    return f"onsale.{source}.>"


async def _quiet(_: Exception) -> None:
    """Ignores connection errors: the calls that fail with them report them."""
