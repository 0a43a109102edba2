"""Requests and answers of operators about access codes."""

from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Field, StringConstraints

from shared.contracts.fields import Body, Page, ReasonText

CodeId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
CodeText = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", min_length=1, max_length=64)]


class CreateAccessCodes(Body):
    """How many access codes to create, for which lane, and how many places each is good for."""

    lane: int = Field(ge=1, le=15)
    count: int = Field(1, ge=1, le=10_000)
    uses: int = Field(1, ge=1, le=1_000_000)
    reason: ReasonText | None = None


class CreatedAccessCodes(BaseModel):
    """The new codes. They are shown only once, because only their hashes are stored."""

    codes: list[str]


class AccessCodeView(BaseModel):
    """A stored code; `uses` counts since the last reset of the room."""

    code_id: str
    lane: int
    uses_max: int
    uses: int
    created_at: AwareDatetime
    revoked_at: AwareDatetime | None


class AccessCodePage(Page):
    """Access codes, newest first."""

    codes: list[AccessCodeView]


class RevokeAccessCodes(Body):
    """Codes to revoke, by their text or by their ids."""

    codes: list[CodeText] = Field([], max_length=1000)
    code_ids: list[CodeId] = Field([], max_length=1000)
    reason: ReasonText | None = None


class RevokedAccessCodes(BaseModel):
    """How many of the codes were valid until now."""

    revoked: int
