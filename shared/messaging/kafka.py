"""The event log in Kafka: a topic for each source, and in it each on-sale in one partition.

Topics, their partitions and how long they keep things belong to those who run Kafka. Positions are offsets.
"""

import asyncio
import zlib
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from shared.messaging.log import PUBLISH_S, START, Entry, LogAway, Told

AWAY = (KafkaError, TimeoutError, OSError)


class Kafka:
    """Reads without a consumer group: readers keep their positions themselves."""

    def __init__(self, servers: Sequence[str]) -> None:
        self._servers = list(servers)
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._positions: dict[str, str] = {}
        self._connecting = asyncio.Lock()

    async def publish(self, source: str, batch: Sequence[Told]) -> None:
        try:
            async with asyncio.timeout(PUBLISH_S):
                producer = await self._sending()
                partitions = len(await producer.partitions_for(_topic(source)))
                sent = [
                    await producer.send(
                        _topic(source), told.body.encode(), key=told.event_id.encode(),
                        partition=zlib.crc32(told.event_id.encode()) % partitions,
                        headers=[("id", told.id.encode()), ("type", told.type.encode())],
                    )
                    for told in batch
                ]  # fmt: skip
                await asyncio.gather(*sent)
        except AWAY as away:
            raise LogAway(f"Kafka takes nothing: {str(away) or away!r}") from away

    async def streams(self, source: str) -> list[str]:
        try:
            async with asyncio.timeout(PUBLISH_S):
                partitions = await (await self._sending()).partitions_for(_topic(source))
        except AWAY as away:
            raise LogAway(f"Kafka does not answer: {str(away) or away!r}") from away
        return [f"{_topic(source)}/{partition}" for partition in sorted(partitions)]

    async def read(self, positions: Mapping[str, str], *, count: int, wait_s: float) -> list[Entry]:
        try:
            async with asyncio.timeout(PUBLISH_S + wait_s):
                consumer = await self._receiving()
                self._go_to(consumer, positions)
                batches = await consumer.getmany(timeout_ms=round(wait_s * 1000), max_records=count)
        except AWAY as away:
            raise LogAway(f"Kafka gives nothing: {str(away) or away!r}") from away
        entries = [
            Entry(f"{place.topic}/{place.partition}", str(record.offset), record.value)
            for place, records in batches.items()
            for record in records
        ]
        self._positions |= {entry.stream: entry.position for entry in entries}
        return entries

    def _go_to(self, consumer: AIOKafkaConsumer, positions: Mapping[str, str]) -> None:
        """What is no longer kept is passed over: reading goes on with the oldest that is."""
        if self._positions.keys() != positions.keys():
            consumer.assign([_place(stream) for stream in positions])
            self._positions = {}
        for stream, position in positions.items():
            if self._positions.get(stream) != position:
                consumer.seek(_place(stream), 0 if position == START else int(position) + 1)
        self._positions = dict(positions)

    async def _sending(self) -> AIOKafkaProducer:
        async with self._connecting:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    bootstrap_servers=self._servers, enable_idempotence=True,
                    request_timeout_ms=round(PUBLISH_S * 500),
                )  # fmt: skip
                await _started(producer)
                self._producer = producer
        return self._producer

    async def _receiving(self) -> AIOKafkaConsumer:
        async with self._connecting:
            if self._consumer is None:
                consumer = AIOKafkaConsumer(
                    bootstrap_servers=self._servers, enable_auto_commit=False, auto_offset_reset="earliest"
                )
                await _started(consumer)
                self._consumer = consumer
        return self._consumer

    async def close(self) -> None:
        for end in filter(None, (self._producer, self._consumer)):
            await end.stop()


async def _started(end: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    try:
        await end.start()
    except BaseException:
        await end.stop()
        raise


def _topic(source: str) -> str:
    return f"onsale.{source}"


def _place(stream: str) -> TopicPartition:
    topic, _, partition = stream.rpartition("/")
    return TopicPartition(topic, int(partition))
