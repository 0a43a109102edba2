"""What the gateway's doors are handed: one object per process, opened by the app."""

from dataclasses import dataclass

from starlette.types import Scope

from services.gateway.forward_auth.fail_open import Outages
from services.gateway.forward_auth.handover_codes import Handovers
from services.gateway.forward_auth.revoked_passes import Revocations
from services.gateway.protection.identity import Identities
from services.gateway.protection.proof_of_work import Door
from services.gateway.protection.rate_limits import Limits
from services.gateway.settings import Settings
from services.gateway.waiting_line.cache import LineBoard
from services.gateway.waiting_line.heartbeats import Life
from services.gateway.waiting_line.join_batcher import Joins
from services.gateway.waiting_line.lottery_cache import Lotteries
from services.gateway.waiting_line.place_client import Places
from shared.rpc.user_places import UserPlaces
from shared.security.tokens import PassReader, QueueToken


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
        `BadCredential`, `WrongEvent`, and for a user `NotInQueue`.
        """
        token = self.identities.shown(scope, event_id)
        if token is not None:
            return token
        user = await self.identities.user(scope)
        line = await self.board.line(event_id)
        return await self.user_places.place(event_id, user.holder, epoch_min=line.epoch)
