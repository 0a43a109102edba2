"""What a process found when it checked itself: its databases, clocks, keys and settings, for `onsale doctor`.

No text contains a secret: addresses of databases are shown without user and password.
"""

from typing import Literal

from pydantic import BaseModel

from shared.routes import Service

Verdict = Literal["ok", "look", "broken"]


class Check(BaseModel):
    """One check: its subject, what was found, and what to do unless it is `ok`. `look` may be meant so; `broken` loses
    money, tickets or fans, or will.
    """

    subject: str
    verdict: Verdict
    found: str
    advice: str = ""


class ServiceChecks(BaseModel):
    """The checks of the process that answered, and its version."""

    service: Service
    version: str
    checks: list[Check]


def ok(subject: str, found: str) -> Check:
    """Nothing to do."""
    return Check(subject=subject, verdict="ok", found=found)


def suspicious(subject: str, found: str, advice: str) -> Check:
    """Perhaps meant so, perhaps forgotten."""
    return Check(subject=subject, verdict="look", found=found, advice=advice)


def broken(subject: str, found: str, advice: str) -> Check:
    """A sale must not begin like this."""
    return Check(subject=subject, verdict="broken", found=found, advice=advice)
