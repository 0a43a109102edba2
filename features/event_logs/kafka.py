"""The event log in Kafka: one topic per source; all events of one on-sale are in one partition of it.

Topics, partitions and retention are configured by those who run Kafka. A position is an offset.
"""

import asyncio
import zlib
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from features.event_logs.servers import servers_of
from shared.messaging.log import PUBLISH_S, SETTING, START, LogEntry, LogRefused, LogUnavailable, PendingEvent
from shared.process.settings import ServiceSettings

AWAY = (KafkaError, TimeoutError, OSError)


class Kafka:
    """Reads without a consumer group: readers store their positions themselves."""

    def __init__(self, servers: Sequence[str]) -> None:
        self._servers = list(servers)
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._positions: dict[str, str] = {}
        self._connecting = asyncio.Lock()

    async def publish(self, source: str, batch: Sequence[PendingEvent]) -> None:
        try:
            async with asyncio.timeout(PUBLISH_S):
                producer = await self._open_producer()
                partitions = len(await producer.partitions_for(_topic(source)))
                sent = [
                    await producer.send(
                        _topic(source), event.body.encode(), key=event.event_id.encode(),
                        partition=zlib.crc32(event.event_id.encode()) % partitions,
                        headers=[("id", event.id.encode()), ("type", event.type.encode())],
                    )
                    for event in batch
                ]  # fmt: skip
                await asyncio.gather(*sent)
        except AWAY as away:
            raise LogUnavailable(f"Kafka does not accept events: {str(away) or away!r}") from away

    async def streams(self, source: str) -> list[str]:
        try:
            async with asyncio.timeout(PUBLISH_S):
                partitions = await (await self._open_producer()).partitions_for(_topic(source))
        except AWAY as away:
            raise LogUnavailable(f"Kafka does not answer: {str(away) or away!r}") from away
        return [f"{_topic(source)}/{partition}" for partition in sorted(partitions)]

    async def read(self, positions: Mapping[str, str], *, count: int, wait_s: float) -> list[LogEntry]:
        try:
            async with asyncio.timeout(PUBLISH_S + wait_s):
                consumer = await self._open_consumer()
                self._seek(consumer, positions)
                batches = await consumer.getmany(timeout_ms=round(wait_s * 1000), max_records=count)
        except AWAY as away:
            raise LogUnavailable(f"Kafka does not deliver events: {str(away) or away!r}") from away
        entries = [
            LogEntry(f"{partition.topic}/{partition.partition}", str(record.offset), record.value)
            for partition, records in batches.items()
            for record in records
        ]
        self._positions |= {entry.stream: entry.position for entry in entries}
        return entries

    def _seek(self, consumer: AIOKafkaConsumer, positions: Mapping[str, str]) -> None:
        """Moves the consumer to the positions. Entries past retention are skipped: the oldest kept one is next."""
        if self._positions.keys() != positions.keys():
            consumer.assign([_partition(stream) for stream in positions])
            self._positions = {}
        for stream, position in positions.items():
            if self._positions.get(stream) != position:
                consumer.seek(_partition(stream), 0 if position == START else int(position) + 1)
        self._positions = dict(positions)

    async def _open_producer(self) -> AIOKafkaProducer:
        async with self._connecting:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    bootstrap_servers=self._servers, enable_idempotence=True,
                    request_timeout_ms=round(PUBLISH_S * 500),
                )  # fmt: skip
                await _start(producer)
                self._producer = producer
        return self._producer

    async def _open_consumer(self) -> AIOKafkaConsumer:
        async with self._connecting:
            if self._consumer is None:
                consumer = AIOKafkaConsumer(
                    bootstrap_servers=self._servers, enable_auto_commit=False, auto_offset_reset="earliest"
                )
                await _start(consumer)
                self._consumer = consumer
        return self._consumer

    async def close(self) -> None:
        for end in filter(None, (self._producer, self._consumer)):
            await end.stop()


def open_kafka(url: str, _settings: ServiceSettings) -> Kafka:
    user, _, servers = servers_of(url, 9092)
    if user is not None:
        raise LogRefused(f"{SETTING}: user and password are not supported for Kafka; leave them out.")
    return Kafka(servers)


async def _start(end: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    try:
        await end.start()
    except BaseException:
        await end.stop()
        raise


def _topic(source: str) -> str:
    return f"onsale.{source}"


def _partition(stream: str) -> TopicPartition:
    topic, _, partition = stream.rpartition("/")
    return TopicPartition(topic, int(partition))
