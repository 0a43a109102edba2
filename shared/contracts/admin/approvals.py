"""Requests for a second person's approval: what an operator asks to do, and what came of it.

Who approves reads `figures`, the body as the service will read it, with the defaults that it leaves out.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from shared.contracts.fields import Body

BODY_MAX_CHARS = 16 * 1024
Header = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,255}$")]


class NewApproval(Body):
    """A request that needs a second person: `body` is the text that will be sent, with the reason in it."""

    control: str
    body: Annotated[str, StringConstraints(min_length=2, max_length=BODY_MAX_CHARS)]
    idempotency_key: Header | None = None
    if_match: Header | None = None


class ApprovedCall(BaseModel):
    """What the requester sends, with `approval` as the header `Onsale-Approval`."""

    path: str
    body: str
    idempotency_key: str | None
    if_match: str | None
    approval: str


class ApprovalView(BaseModel):
    """Who wants to do what and why, and what a second person decided. `call` is told to the requester alone."""

    id: str
    control: str
    role: Literal["operator", "admin"]
    reason: str
    figures: dict[str, Any]
    requested_by: str
    status: Literal["pending", "approved", "refused"]
    decided_by: str | None
    expires_ms: int
    call: ApprovedCall | None = None


class ApprovalList(BaseModel):
    """The requests of an event that have not expired, oldest first."""

    approvals: Annotated[list[ApprovalView], Field(description="pending and decided ones")]
