"""Showing a frame of an event: one script keeps it in a short log and tells everyone who listens, in one round trip.

Pub/Sub forgets. Each frame names the version shown before it, so a listener that missed one notices, and finds it in
the log. On a cluster, or when told so, listeners of single events hear it from their shard (SPUBLISH); those that hear
all events by pattern, for which shards know no word, hear it the plain way.
"""

from collections.abc import Iterable

from shared.contracts.frames import Frame, log_key
from shared.redis.client import Redis
from shared.redis.scripts import Script
from shared.runtime.settings import PubSubMode

FRAMES_MIN, FRAMES_MAX = 4, 64
LOG_BYTES_MAX = 256 * 1024
LOG_KEPT_S = 3600
SHOW = Script.load(__package__, "show")


class SnapshotPublisher:
    """Frames of events, on their way out and in the log."""

    def __init__(self, redis: Redis, mode: PubSubMode) -> None:
        self._redis, self._mode = redis, mode
        self._sharded = None if mode == "auto" else mode == "sharded"

    async def sharded(self) -> bool:
        """Whether listeners of single events subscribe to shards: on a cluster that knows them. It is asked once."""
        if self._sharded is None:
            clustered = (await self._redis.info("cluster")).get("cluster_enabled")
            self._sharded = bool(clustered and await self._knows_shards())
        return self._sharded

    async def _knows_shards(self) -> bool:
        """Redis 6.2 does not."""
        answer = await self._redis.execute_command("COMMAND INFO", "SPUBLISH")
        return any(answer.values() if isinstance(answer, dict) else answer)

    async def publish(self, channel: str, frame: Frame) -> int:
        """Tells everyone; how many heard it."""
        text = frame.model_dump_json(exclude={"after"}).encode()
        heard: int = await SHOW(
            self._redis,
            log=log_key(channel),
            channel=channel,
            version=frame.version,
            frame=text,
            kept_max=max(FRAMES_MIN, min(FRAMES_MAX, LOG_BYTES_MAX // len(text))),
            kept_s=LOG_KEPT_S,
            sharded=int(await self.sharded()),
        )
        return heard

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
