"""What a feature may do about a join, before the gateway asks the queue for the place."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from shared.contracts.frames import LineFrame
from shared.contracts.queue import JoinRequest
from shared.errors.problems import Unavailable
from shared.web.request import Request

BEFORE_JOIN_S = 5.0  # as long as the queue may take


@dataclass(slots=True)
class JoinAttempt:
    """A fan who wants to join a line. `frame` has the room's rules; `fan` is who joins, which a hook may change;
    `from_gate`: a protected site sent them. `is_new` is set once the fan got a place and had none before.
    """

    request: Request
    frame: LineFrame
    fan: JoinRequest
    from_gate: bool = False
    is_new: bool = False


class BeforeJoin(Protocol):
    """A hook of the gateway: a part adds it to `before_join` of the gateway's state when it is opened."""

    def wants(self, request: Request, frame: LineFrame) -> bool:
        """Whether it has anything to do with this join. Called for each; without I/O."""

    def joining(self, attempt: JoinAttempt) -> AbstractAsyncContextManager[None]:
        """Entered before the queue is asked, left when the fan has a place or was refused. It enters within
        `BEFORE_JOIN_S`, else the fan gets `Unavailable`; a problem that it raises is the fan's answer.
        """


@asynccontextmanager
async def hooked(hooks: Sequence[BeforeJoin], attempt: JoinAttempt) -> AsyncIterator[None]:
    """Enters the hooks that want this join, in their order, and leaves them in the reverse one."""
    async with AsyncExitStack() as stack:
        for hook in hooks:
            if hook.wants(attempt.request, attempt.frame):
                try:
                    async with asyncio.timeout(BEFORE_JOIN_S):
                        await stack.enter_async_context(hook.joining(attempt))
                except TimeoutError:
                    raise Unavailable from None
        yield
