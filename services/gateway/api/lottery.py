"""The lottery's public data, with which anyone can verify it, and a fan's own proof of entry."""

from fastapi import APIRouter, Request, Response

from services.gateway.state import State
from shared.contracts.lottery import EntryProof, PublishedLottery
from shared.web.parameters import EventIdPath

router = APIRouter(tags=["line"])


@router.get("/events/{event_id}/queue/lottery", summary="Get the lottery of the pre-queue")
async def published(event_id: EventIdPath, request: Request, response: Response) -> PublishedLottery:
    """Commitment and rules from the beginning; number and hash of the entrants once entry has closed; public value and
    seed once it is drawn.
    """
    state: State = request.app.state.deps
    response.headers["cache-control"] = "public, max-age=1"
    return await state.lottery_cache.published(event_id, known=state.line_cache.cached(event_id) is not None)


@router.get("/events/{event_id}/queue/lottery/proof", summary="Get my lottery entry")
async def proof(event_id: EventIdPath, request: Request, response: Response) -> EntryProof:
    """The proof that the place of this queue token was among the entrants when entry closed."""
    state: State = request.app.state.deps
    token = await state.require_place(request.scope, event_id)
    state.rate_limits.check_fan(event_id, token.holder)
    response.headers["cache-control"] = "no-store"
    return await state.lottery_cache.prove(token)
