"""What the notifier's doors need, opened by the app and handed to every request."""

from dataclasses import dataclass

from services.notifier.broadcast.hub import Hub
from services.notifier.feeds.registry import FeedRegistry
from services.notifier.headroom import Headroom
from services.notifier.heartbeats import Heartbeats
from services.notifier.settings import Settings
from services.notifier.streams.limits import StreamLimiter
from shared.rpc.user_places import UserPlaces
from shared.security.tokens import PassReader, QueueTokens
from shared.security.user_jwt import Users


@dataclass(frozen=True, slots=True)
class State:
    """One process's worth of listeners."""

    settings: Settings
    hub: Hub
    following: FeedRegistry
    turnstile: StreamLimiter
    headroom: Headroom
    life: Heartbeats
    queue_tokens: QueueTokens
    passes: PassReader
    users: Users
    user_places: UserPlaces
