"""What a running queue consists of: the handles that `app.py` opened, as its doors use them."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from services.queue.access.access_code_store import CodeBook
from services.queue.admission.autotune import Steering
from services.queue.admission.gatekeeper import Gatekeeper
from services.queue.line.claims import Claims
from services.queue.line.heartbeats import Life
from services.queue.line.join import Joins
from services.queue.line.redis_line import Line
from services.queue.line.sessions import Floors, Sessions
from services.queue.lottery.service import Lottery
from services.queue.reconcile import Reconciling
from services.queue.recovery import Recovery
from services.queue.rooms.store import Rooms


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
