"""What the notifier's doors need, opened by the app and handed to every request."""

from dataclasses import dataclass

from services.notifier.broadcast.hub import Hub
from services.notifier.feeds.registry import Following
from services.notifier.headroom import Headroom
from services.notifier.heartbeats import Life
from services.notifier.settings import Settings
from services.notifier.streams.limits import Turnstile
from shared.rpc.user_places import UserPlaces
from shared.security.tokens import PassReader, QueueTokens
from shared.security.user_jwt import Users


@dataclass(frozen=True, slots=True)
class Room:
    """One process's worth of listeners."""

    settings: Settings
    hub: Hub
    following: Following
    turnstile: Turnstile
    headroom: Headroom
    life: Life
    queue_tokens: QueueTokens
    passes: PassReader
    users: Users
    user_places: UserPlaces
