"""The alarms that Alertmanager knows, asked by its API of version 2 while somebody watches.

It decides by more than the console sees (percentiles of requests, memory of Redis). It is asked every few seconds for
all events at once. Without an answer the console's own alarms go on, and one more says that the others are missing.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Annotated, Any

import httpx
from pydantic import AwareDatetime, BaseModel, TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from features.console.gathering.alarms import active_alarm
from features.console.metrics import MALFORMED, QUESTIONS
from features.console.schemas import ActiveAlarm
from shared.alarms import BY_NAME
from shared.concurrency.background import stop
from shared.runtime.clock import from_datetime, now_ms
from shared.runtime.logging import get_logger

log = get_logger("onsale.console")
PATH = "/api/v2/alerts?active=true&silenced=false&inhibited=false&unprocessed=false"
EVERY_S, SILENT_S = 5.0, 15.0
ANSWER_MAX_BYTES, SUMMARY_MAX, SUMMARIES_MAX = 8_000_000, 300, 3


class _Alert(BaseModel):
    """An alert as Alertmanager answers it; the rest of it is left out."""

    labels: dict[str, str]
    annotations: dict[str, str] = {}
    startsAt: AwareDatetime  # noqa: N815 - its name there


def _or_none(raw: Any, validate: ValidatorFunctionWrapHandler) -> _Alert | None:
    try:
        alert: _Alert | None = validate(raw)
    except ValidationError:
        return None
    return alert


_ALERTS = TypeAdapter(list[Annotated[_Alert | None, WrapValidator(_or_none)]])  # none for a malformed one


class Alertmanager:
    """The last answer, and since when there is none. Moments are those of the event loop's clock."""

    def __init__(self, client: httpx.AsyncClient, url: str, *, deadline_s: float) -> None:
        self._client, self._url, self._deadline_s = client, url.rstrip("/") + PATH, deadline_s
        self._by_event: dict[str | None, list[ActiveAlarm]] = {}
        self._question_s, self._malformed = -math.inf, 0
        self._task: asyncio.Task[None] | None = None
        self._restart_clock()

    def refresh(self) -> None:
        """Begins to ask, if that is due and no question is under way. Called each second while somebody watches."""
        if self._is_waiting():
            return
        if self._is_idle():  # what was answered before nobody watched says nothing
            self._by_event = {}
            self._restart_clock()
        now_s = asyncio.get_running_loop().time()
        if now_s - self._question_s >= EVERY_S:
            self._question_s = now_s
            self._task = asyncio.create_task(self._ask(), name="console alertmanager")

    def alarms(self, event_id: str) -> list[ActiveAlarm]:
        """The alarms of this event and those of no event, of each name one; or the one that says that nothing was
        answered for `SILENT_S`. None while it is not asked, because then silence says nothing.
        """
        if self._is_idle():
            return []
        if asyncio.get_running_loop().time() - self._answered_s > SILENT_S:
            return [self._silence]
        return [*self._by_event.get(event_id, ()), *self._by_event.get(None, ())]

    async def close(self) -> None:
        if self._task is not None:
            await stop([self._task])

    def _is_waiting(self) -> bool:
        return self._task is not None and not self._task.done()

    def _is_idle(self) -> bool:
        return not self._is_waiting() and asyncio.get_running_loop().time() - self._question_s > SILENT_S

    def _restart_clock(self) -> None:
        """Silence counts from now. Its alarm is made here, so that it stays the same while it fires."""
        self._answered_s, self._silence = asyncio.get_running_loop().time(), _silence(since_ms=now_ms())

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                found = _ALERTS.validate_json(await self._read())
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as failed:
            QUESTIONS.labels("alertmanager", "failed").inc()
            log.info("console.alertmanager_silent", error=type(failed).__name__)
            return
        alerts = [alert for alert in found if alert is not None]
        self._count_malformed(len(found) - len(alerts))
        self._by_event = _by_event(alerts)
        self._restart_clock()
        QUESTIONS.labels("alertmanager", "answered").inc()

    async def _read(self) -> bytes:
        body = b""
        async with self._client.stream("GET", self._url) as response:
            response.raise_for_status()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > ANSWER_MAX_BYTES:
                    raise ValueError("the answer is too long")
        return body

    def _count_malformed(self, alerts: int) -> None:
        MALFORMED.set(alerts)
        if alerts > self._malformed:
            log.warning("console.alerts_malformed", alerts=alerts)
        self._malformed = alerts


def _by_event(alerts: Sequence[_Alert]) -> dict[str | None, list[ActiveAlarm]]:
    """The alarms of the table, of each event and name one, oldest first."""
    groups: dict[tuple[str | None, str], list[_Alert]] = {}
    for alert in sorted(alerts, key=lambda alert: (alert.startsAt, sorted(alert.labels.items()))):
        name = alert.labels.get("alertname")
        if name in BY_NAME:
            groups.setdefault((alert.labels.get("event_id"), name), []).append(alert)
    found: dict[str | None, list[ActiveAlarm]] = {}
    for (event_id, name), group in groups.items():
        since_ms = from_datetime(group[0].startsAt)
        found.setdefault(event_id, []).append(active_alarm(name, summary=_summary(name, group), since_ms=since_ms))
    return found


def _summary(name: str, group: Sequence[_Alert]) -> str:
    """What the alerts of one name say: how many say it differently, and the first of them."""
    meaning = BY_NAME[name].meaning
    different = list(dict.fromkeys((alert.annotations.get("summary") or meaning)[:SUMMARY_MAX] for alert in group))
    if len(different) == 1:
        return different[0]
    more = [f"and {len(different) - SUMMARIES_MAX} more"] if len(different) > SUMMARIES_MAX else []
    return f"{len(different)} alerts: " + " · ".join([*different[:SUMMARIES_MAX], *more])


def _silence(*, since_ms: int) -> ActiveAlarm:
    return ActiveAlarm(
        name="AlertmanagerSilent", severity="warning", since_ms=since_ms,
        summary="Alertmanager does not answer: only the alarms that the console decides itself are shown",
        meaning="Alarms that need more than the console's figures (percentiles, memory of Redis) are missing here.",
        check_first="Whether Alertmanager runs, and whether it answers at `CONSOLE_ALERTMANAGER_URL`.",
        do="Start Alertmanager, or correct the setting. The pager and the chat are silent too while it is down.",
    )  # fmt: skip
