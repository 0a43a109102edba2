"""The gateway's part: wrong codes are limited, for each event and each address at it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.gateway.metrics import JOINS
from services.gateway.state import State
from shared.concurrency.background import Loops
from shared.contracts.frames import LineFrame
from shared.errors.problems import Problem
from shared.runtime.metrics import with_series
from shared.security.limits import AddressGuessLimiter, GuessLimiter
from shared.web.before_join import JoinAttempt
from shared.web.parts import Part
from shared.web.request import Request

WRONG_CODES_PER_S, WRONG_CODES_BURST_S = 20.0, 5.0  # of one event


class CodeUnknown(Problem, status=403):
    """This code opens no lane of this line. Correct it, or join the general lane without a code."""


class CodeUsedUp(Problem, status=409):
    """This code was used as often as it may be. Join the general lane without a code."""


with_series(JOINS, outcome=[CodeUnknown.slug, CodeUsedUp.slug])


class CodeGuesses:
    """Looks at each join with a code."""

    def __init__(self, state: State) -> None:
        per_s, processes = WRONG_CODES_PER_S, state.settings.processes
        self._guesses = GuessLimiter(per_s=per_s, at_once=per_s * WRONG_CODES_BURST_S, shared_by=processes)
        self._guesses_of_addresses = AddressGuessLimiter(shared_by=processes)
        self._address_of = state.rate_limits.address_of

    def wants(self, request: Request, frame: LineFrame) -> bool:
        """A code is in the body."""
        return request.has_body or request.form is not None

    @asynccontextmanager
    async def joining(self, attempt: JoinAttempt) -> AsyncIterator[None]:
        """Raises `TooManyWrongCodes`, `Overloaded`."""
        if attempt.fan.code is None:
            yield
            return
        event_id, address = attempt.frame.event_id, self._address_of(attempt.request.scope)
        async with (
            self._guesses_of_addresses.guess(event_id, address) as guess,
            self._guesses.guess(event_id, guess),
        ):
            try:
                yield
            except CodeUnknown:
                guess.wrong = True
                raise


@asynccontextmanager
async def open_guesses(state: State, loops: Loops) -> AsyncIterator[CodeGuesses]:
    """Looks at each join from now on."""
    state.before_join.append(guesses := CodeGuesses(state))
    yield guesses


PART = Part(open=open_guesses)
