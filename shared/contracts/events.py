"""Domain events that services send each other through the event log, at least once."""

import itertools
import secrets
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from shared.runtime.clock import now_ms

_process, _numbers = secrets.token_hex(8), itertools.count(1)


class Event(BaseModel):
    """The envelope. `aggregate` names what changed; `version` rises with each change of it."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(default_factory=lambda: f"{_process}{next(_numbers):016x}")
    type: str
    event_id: str
    occurred_at_ms: int = Field(default_factory=now_ms)
    actor: str = "system"
    aggregate: str
    version: int = 0
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
