"""The lottery as anyone may check it: what is published, and a fan's own proof of having entered."""

from fastapi import APIRouter, Request, Response

from services.gateway.state import State
from shared.contracts.lottery import EntryProof, PublishedLottery
from shared.web.fields import EventIdPath

router = APIRouter(tags=["line"])


@router.get("/events/{event_id}/queue/lottery", summary="Get the lottery of the pre-queue")
async def published(event_id: EventIdPath, request: Request, response: Response) -> PublishedLottery:
    """The commitment and the rules from the beginning; the entrants' number and hash once entry has closed; public
    value and seed once it is drawn.
    """
    state: State = request.app.state.deps
    told = await state.lotteries.published(event_id)
    response.headers["cache-control"] = "public, max-age=1"
    return told


@router.get("/events/{event_id}/queue/lottery/proof", summary="Get my lottery entry")
async def proof(event_id: EventIdPath, request: Request, response: Response) -> EntryProof:
    """For the holder of a queue token whose place was entered when entry closed."""
    state: State = request.app.state.deps
    token = await state.place(request.scope, event_id)
    proved = await state.lotteries.prove(token)
    response.headers["cache-control"] = "no-store"
    return proved
