"""What a running queue consists of: the handles that `app.py` opened, as its doors use them."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from services.queue.claims import Claims
from services.queue.code_book import CodeBook
from services.queue.floors import Floors
from services.queue.gatekeeper import Gatekeeper
from services.queue.joins import Joins
from services.queue.life import Life
from services.queue.line import Line
from services.queue.lottery import Lottery
from services.queue.reconciling import Reconciling
from services.queue.recovery import Recovery
from services.queue.rooms import Rooms
from services.queue.sessions import Sessions
from services.queue.steering import Steering


@dataclass(frozen=True)
class Running:
    """Kept on the app's state."""

    line: Line
    rooms: Rooms
    joins: Joins
    claims: Claims
    life: Life
    recovery: Recovery
    reconciling: Reconciling
    sessions: Sessions
    gatekeeper: Gatekeeper
    lottery: Lottery
    codes: CodeBook
    floors: Floors
    steering: Steering


async def running(request: Request) -> Running:
    """A dependency that yields what runs here; `async`, because another would be run in a thread."""
    found: Running = request.app.state.queue
    return found


Queue = Annotated[Running, Depends(running)]
