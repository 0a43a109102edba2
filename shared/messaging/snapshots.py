"""Publishes frames (state snapshots) of an event: one script stores a frame in a short log and publishes it.

Pub/Sub loses messages. Each frame names the version before it, so a subscriber notices a gap and reads the missing
frames from the log. On a cluster subscribers of single events receive frames from their
shard (SPUBLISH); subscribers by pattern, which sharded Pub/Sub does not support, receive them by PUBLISH.
"""

import time
from collections.abc import Iterable

from shared.contracts.frames import Frame, log_key
from shared.redis.client import Redis, Script
from shared.runtime.tracing import sale_log

FRAMES_MIN, FRAMES_MAX = 4, 64
LOG_BYTES_MAX = 256 * 1024
LOG_KEPT_S = 3600
PUBLISH = Script.load(__package__, "publish")


class SnapshotPublisher:
    """Publishes frames and reads their log."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._sharded: bool | None = None

    async def sharded(self) -> bool:
        """Whether subscribers of single events use sharded channels: on a cluster that supports them. Asked once."""
        if self._sharded is None:
            clustered = (await self._redis.info("cluster")).get("cluster_enabled")
            self._sharded = bool(clustered and await self._supports_shards())
        return self._sharded

    async def _supports_shards(self) -> bool:
        """Redis 6.2 has no SPUBLISH."""
        answer = await self._redis.execute_command("COMMAND INFO", "SPUBLISH")
        return any(answer.values() if isinstance(answer, dict) else answer)

    async def publish(self, channel: str, frame: Frame) -> int:
        """Publishes a frame; the number of subscribers that received it."""
        body = frame.model_dump_json(exclude={"after"}).encode()
        began_s = time.perf_counter()
        receivers: int = await PUBLISH(
            self._redis,
            log=log_key(channel),
            channel=channel,
            version=frame.version,
            frame=body,
            kept_max=max(FRAMES_MIN, min(FRAMES_MAX, LOG_BYTES_MAX // len(body))),
            kept_s=LOG_KEPT_S,
            sharded=int(await self.sharded()),
        )
        if sale_log.on:
            sale_log.write("sale.publish", event_id=getattr(frame, "event_id", None), kind=type(frame).__name__,
                           version=frame.version, receivers=receivers, bytes=len(body),
                           ms=round((time.perf_counter() - began_s) * 1000, 2))  # fmt: skip
        return receivers

    async def log(self, channels: Iterable[str]) -> dict[str, list[bytes]]:
        """The latest frames of these channels of one event, oldest first, in one round trip."""
        pipe, names = self._redis.pipeline(transaction=False), list(channels)
        for channel in names:
            pipe.xrange(log_key(channel))
        answers = await pipe.execute()
        return {
            channel: [fields[b"frame"] for _, fields in entries]
            for channel, entries in zip(names, answers, strict=True)
        }
