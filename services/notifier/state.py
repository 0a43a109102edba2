"""The container of the notifier: one object per process, opened by the app, handed to every handler."""

from dataclasses import dataclass, field

from services.notifier.feeds.registry import FeedRegistry
from services.notifier.headroom import Headroom
from services.notifier.settings import Settings
from services.notifier.streams.open_stream import PassStreams, StreamLimiter, StreamOpener
from services.notifier.topics.hub import Hub
from shared.clients.heartbeats import HeartbeatReporter
from shared.clients.revoked_passes import RevokedPasses
from shared.contracts.queue import QueueClient
from shared.security.tokens import PassReader, QueueTokens, Users


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything a handler of the notifier may need."""

    settings: Settings
    hub: Hub
    feeds: FeedRegistry
    limiter: StreamLimiter
    streams: StreamOpener
    revoked_passes: RevokedPasses
    pass_streams: PassStreams
    headroom: Headroom
    heartbeats: HeartbeatReporter
    queue_tokens: QueueTokens
    passes: PassReader
    queue: QueueClient
    users: Users = field(default_factory=Users)
