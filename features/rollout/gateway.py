"""The gateway's part: who comes from a protected site, which drew them already, is inside the share here too."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from features.rollout.rules import outside, percent_of
from services.gateway.state import State
from shared.concurrency.background import Loops
from shared.contracts.frames import LineFrame
from shared.web.before_join import JoinAttempt
from shared.web.parts import Part
from shared.web.request import Request

DRAWS_MAX = 1_000


def passes_by(frame: LineFrame, holder: str) -> bool:
    """Whether this holder is outside the share."""
    percent = percent_of(frame.options)
    return percent < 100 and outside(frame.event_id, holder, percent)


class Draw:
    """Looks at each join from a protected site."""

    def __init__(self, state: State) -> None:
        self._token_reader = state.token_reader

    def wants(self, request: Request, frame: LineFrame) -> bool:
        """The body says whether the fan was redirected."""
        return request.has_body and percent_of(frame.options) < 100

    @asynccontextmanager
    async def joining(self, attempt: JoinAttempt) -> AsyncIterator[None]:
        """A redirected fan gets a holder inside the rollout, the same each time. Fans with a place and signed-in fans
        keep their holder.
        """
        fan, event_id, percent = attempt.fan, attempt.frame.event_id, percent_of(attempt.frame.options)
        has_holder = fan.user_id is not None or self._token_reader.place_token(attempt.request.scope, event_id)
        if attempt.from_gate and percent > 0 and not has_holder:
            named = (
                self._token_reader.holder_for_key(event_id, fan.holder.encode(), f"lot {n}") for n in range(DRAWS_MAX)
            )
            holder = next((name for name in named if not outside(event_id, name, percent)), fan.holder)
            attempt.fan = fan.model_copy(update={"holder": holder})
        yield


@asynccontextmanager
async def open_draw(state: State, loops: Loops) -> AsyncIterator[Draw]:
    """Looks at each join from now on, before others know the holder."""
    state.before_join.insert(0, draw := Draw(state))
    state.passes_by.append(passes_by)
    yield draw


PART = Part(open=open_draw)
