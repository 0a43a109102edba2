"""A rehearsal of an event: started, watched, removed. Whoever starts one needs the role that applies event files."""

from fastapi import APIRouter, Request

from services.console.state import StateDep
from shared.contracts.admin.console import REHEARSAL, RehearsalStart, RehearsalView
from shared.security.auth import AnAdmin, Viewer, signed_in
from shared.web.request import EventIdPath

router = APIRouter(tags=["console"])


@router.post(REHEARSAL, status_code=202, summary="Start a rehearsal of an event")
async def start_rehearsal(
    request: Request, event_id: EventIdPath, _operator: AnAdmin, state: StateDep, wanted: RehearsalStart
) -> RehearsalView:
    """Sells a copy of the event to simulated fans. Refused with 409 while one runs, or if anything but the sandbox
    takes payments.
    """
    return await state.rehearsals.start(signed_in(request), event_id, wanted)


@router.get(REHEARSAL, summary="Get the last rehearsal of an event")
async def read_rehearsal(event_id: EventIdPath, _operator: Viewer, state: StateDep) -> RehearsalView:
    """The same from every console, whichever runs it."""
    return await state.rehearsals.read(event_id)


@router.delete(REHEARSAL, status_code=204, summary="Stop and remove the rehearsal of an event")
async def remove_rehearsal(request: Request, event_id: EventIdPath, _operator: AnAdmin, state: StateDep) -> None:
    """Stops it if it runs, closes its copy, and forgets its result. What was sold there stays in the tables, as of
    every closed event.
    """
    await state.rehearsals.remove(signed_in(request), event_id)
