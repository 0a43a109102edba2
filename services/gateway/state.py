"""What the gateway's doors are handed: one object per process, opened by the app."""

from dataclasses import dataclass

from starlette.types import Scope

from services.gateway.forward_auth.fail_open import FailOpenWindow
from services.gateway.forward_auth.handover_codes import OneTimeCodes
from services.gateway.forward_auth.revoked_passes import RevokedPasses
from services.gateway.protection.identity import TokenReader
from services.gateway.protection.proof_of_work import JoinPolicy
from services.gateway.protection.rate_limits import RateLimits
from services.gateway.settings import Settings
from services.gateway.waiting_line.cache import LineCache
from services.gateway.waiting_line.heartbeats import Heartbeats
from services.gateway.waiting_line.join_batcher import JoinBatcher
from services.gateway.waiting_line.lottery_cache import LotteryCache
from services.gateway.waiting_line.place_client import PlaceClient
from shared.rpc.user_places import UserPlaces
from shared.security.tokens import PassReader, QueueToken


@dataclass(frozen=True, slots=True)
class State:
    """Everything a request at this door may need."""

    settings: Settings
    board: LineCache
    identities: TokenReader
    joins: JoinBatcher
    places: PlaceClient
    user_places: UserPlaces
    life: Heartbeats
    passes: PassReader
    handovers: OneTimeCodes
    outages: FailOpenWindow
    revocations: RevokedPasses
    lotteries: LotteryCache
    door: JoinPolicy
    limits: RateLimits

    async def place(self, scope: Scope, event_id: str) -> QueueToken:
        """The place this request speaks for: its queue token's, or that of the user it shows. Raises `NoCredential`,
        `BadCredential`, `WrongEvent`, and for a user `NotInQueue`.
        """
        token = self.identities.queue_token(scope, event_id)
        if token is not None:
            return token
        user = await self.identities.user(scope)
        line = await self.board.line(event_id)
        return await self.user_places.place(event_id, user.holder, epoch_min=line.epoch)
