"""What the pages of every list of the admin APIs have in common."""

from pydantic import BaseModel, ConfigDict


class Page(BaseModel):
    """One page of a list; `next` is the address of the next page, null on the last."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    next: str | None
