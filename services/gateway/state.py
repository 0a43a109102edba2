"""The container of the gateway: one object per process, opened by the app, handed to every handler."""

from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import Scope

from services.gateway.protection.identity import TokenReader
from services.gateway.protection.rate_limits import RateLimits
from services.gateway.settings import Settings
from services.gateway.waiting_line.cache import LineCache
from services.gateway.waiting_line.join_batcher import JoinBatcher
from services.gateway.waiting_line.place_client import PlaceClient
from shared.clients.heartbeats import HeartbeatReporter
from shared.contracts.frames import LineFrame
from shared.contracts.queue import QueueClient
from shared.redis.client import Redis
from shared.rpc import HttpPoster
from shared.security.tokens import QueueToken, Users
from shared.web.before_join import BeforeJoin


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything a handler of the gateway may need."""

    settings: Settings
    redis: Redis
    queue: QueueClient
    line_cache: LineCache
    connections: HttpPoster  # to other services
    token_reader: TokenReader
    join_batcher: JoinBatcher
    place_client: PlaceClient
    users: Users
    heartbeats: HeartbeatReporter
    rate_limits: RateLimits
    before_join: list[BeforeJoin] = field(default_factory=list)  # what features do about each join
    passes_by: list[Callable[[LineFrame, str], bool]] = field(default_factory=list)  # whether a holder need not wait

    async def require_place(self, scope: Scope, event_id: str) -> QueueToken:
        """The place of this request: of its queue token, or of its signed-in user. Raises `NoCredential`,
        `BadCredential`, `WrongEvent`, and for a user `NotInQueue`.
        """
        token = self.token_reader.queue_token(scope, event_id)
        if token is not None:
            return token
        user = await self.token_reader.user(scope)
        line = await self.line_cache.line(event_id)
        return await user.place(event_id, epoch_min=line.epoch)
