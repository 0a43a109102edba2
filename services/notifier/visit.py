"""A visit: what a listener holds for as long as it listens, in whichever way its stream is held."""

import asyncio

from services.notifier.feeds import Feed
from services.notifier.life import place_of
from services.notifier.room import Room
from shared.tokens import QueueToken


class Visit:
    """A count at the turnstile, a place's sign of life, and, once it is known, a feed. Ending twice is ending once."""

    __slots__ = ("_feed", "_identity", "_place", "_room")

    def __init__(self, room: Room, identity: str, token: QueueToken | None) -> None:
        """Raises `TurnedAway`."""
        room.turnstile.enter(identity)
        self._room: Room | None = room
        self._identity = identity
        self._place = None if token is None else place_of(token)
        self._feed: Feed | None = None
        if self._place is not None:
            room.life.begins(self._place)

    def follow(self, feed: Feed) -> None:
        """The feed lives at least as long as this visit."""
        feed.holders += 1
        self._feed = feed

    def end(self) -> None:
        """Gives everything back."""
        room, self._room = self._room, None
        if room is None:
            return
        room.turnstile.leave(self._identity)
        if self._place is not None:
            room.life.ends(self._place)
        if self._feed is not None:
            self._feed.holders -= 1
            self._feed.idle_since_s = asyncio.get_running_loop().time()
