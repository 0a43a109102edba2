"""The audit log as operators read it: the same entries and pages in every service."""

from typing import Any

from pydantic import AwareDatetime, BaseModel

from shared.contracts.fields import Page


class AuditEntry(BaseModel):
    """One action: who did what to what, when and why, with the state before and after, and the version after it if the
    subject has versions. `subject` is `event:…`, `prices:…` (of an event), `order:…` or `webhook:…`.
    """

    id: int
    at: AwareDatetime
    actor: str
    role: str | None
    action: str
    subject: str
    reason: str | None
    version: int | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class AuditPage(Page):
    """Entries of the audit log, newest first."""

    changes: list[AuditEntry]
