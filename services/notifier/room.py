"""What the notifier's doors need, opened by the app and handed to every request."""

from dataclasses import dataclass

from services.notifier.follow import Following
from services.notifier.headroom import Headroom
from services.notifier.hub import Hub
from services.notifier.life import Life
from services.notifier.settings import Settings
from services.notifier.turnstile import Turnstile
from shared.tokens import PassReader, QueueTokens
from shared.user_jwt import Users
from shared.user_places import UserPlaces


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
