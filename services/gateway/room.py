"""What the gateway's doors are handed: one object per process, opened by the app."""

from dataclasses import dataclass

from starlette.types import Scope

from services.gateway.challenge import Door
from services.gateway.handovers import Handovers
from services.gateway.identity import Identities
from services.gateway.joins import Joins
from services.gateway.life import Life
from services.gateway.limits import Limits
from services.gateway.line_board import LineBoard
from services.gateway.lottery import Lotteries
from services.gateway.outages import Outages
from services.gateway.places import Places
from services.gateway.revocations import Revocations
from services.gateway.settings import Settings
from shared.tokens import PassReader, QueueToken
from shared.user_places import UserPlaces


@dataclass(frozen=True, slots=True)
class Room:
    """Everything a request at this door may need."""

    settings: Settings
    board: LineBoard
    identities: Identities
    joins: Joins
    places: Places
    user_places: UserPlaces
    life: Life
    passes: PassReader
    handovers: Handovers
    outages: Outages
    revocations: Revocations
    lotteries: Lotteries
    door: Door
    limits: Limits

    async def place(self, scope: Scope, event_id: str) -> QueueToken:
        """The place this request speaks for: its queue token's, or that of the user it shows. Raises `NoCredential`,
        `BadCredential`, `WrongEvent`, and for a user `NoPlace`.
        """
        token = self.identities.shown(scope, event_id)
        if token is not None:
            return token
        user = await self.identities.user(scope)
        line = await self.board.line(event_id)
        return await self.user_places.place(event_id, user.holder, epoch_min=line.epoch)
