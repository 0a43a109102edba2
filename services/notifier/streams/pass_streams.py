"""The open streams of passes: they end when their pass is revoked or the room is reset, not only when it expires.

Every second each is checked as at its opening. Pub/Sub and the queue's list tell which passes are revoked, the feed
which epoch the room is in.
"""

from services.notifier.feeds.feed import Feed
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Connection
from shared.clients.revoked_passes import RevokedPasses
from shared.concurrency.background import Quiet
from shared.errors.problems import BadCredential
from shared.security.tokens import Pass

CHECK_S = 1.0


class PassStreams:
    """The streams of this process that a pass opened. A stream that has ended is forgotten at the next check."""

    def __init__(self, hub: Hub, revoked_passes: RevokedPasses) -> None:
        self._hub, self._revoked_passes = hub, revoked_passes
        self._open: dict[Connection, tuple[Pass, Feed]] = {}

    async def require_not_revoked(self, admission: Pass) -> None:
        """Raises `BadCredential`."""
        if await self._revoked_passes.is_revoked(admission.event_id, admission.jti):
            raise BadCredential("This pass was revoked: its slot was released. Join the line again.")

    def add(self, connection: Connection, admission: Pass, feed: Feed) -> None:
        self._open[connection] = admission, feed

    async def check(self) -> Quiet:
        """Ends the streams whose pass is no longer valid."""
        for connection, (admission, feed) in list(self._open.items()):
            is_revoked = await self._revoked_passes.is_revoked(admission.event_id, admission.jti)
            if is_revoked or feed.epoch > admission.epoch:
                self._hub.close(connection, reason="revoked")
            if connection.topic is None:
                del self._open[connection]
        return Quiet(0)
