"""The alarms that Alertmanager knows, asked by its API of version 2 while somebody watches.

It decides by more than the console sees (percentiles of requests, memory of Redis). It is asked every few seconds for
all events at once. Without an answer the console's own alarms go on, and one more says that the others are missing.
"""

import asyncio
from collections.abc import Sequence

import httpx
from pydantic import AwareDatetime, BaseModel, TypeAdapter

from services.console.history.alarms import active_alarm
from services.console.metrics import QUESTIONS
from shared.alarms import BY_NAME, URGENCY
from shared.contracts.admin.console import ActiveAlarm
from shared.runtime.clock import from_datetime, now_ms
from shared.runtime.logging import get_logger

log = get_logger("onsale.console")
PATH = "/api/v2/alerts?active=true&silenced=false&inhibited=false&unprocessed=false"
EVERY_S, SILENT_S = 5.0, 15.0
ANSWER_MAX_BYTES, ALARMS_MAX, SUMMARY_MAX = 8_000_000, 100, 300


class _Alert(BaseModel):
    """An alert as Alertmanager answers it; the rest of it is left out."""

    labels: dict[str, str]
    annotations: dict[str, str] = {}
    startsAt: AwareDatetime  # noqa: N815 - its name there


class Alertmanager:
    """The last answer. `at_s` is the clock of the event loop."""

    def __init__(self, client: httpx.AsyncClient, url: str, *, deadline_s: float) -> None:
        self._client, self._url, self._deadline_s = client, url.rstrip("/") + PATH, deadline_s
        self._by_event: dict[str | None, list[ActiveAlarm]] = {}
        self._due_s = self._begun_s = 0.0
        self._answered_ms: int | None = None
        self._task: asyncio.Task[None] | None = None

    def refresh(self) -> None:
        """Begins to ask, if that is due and no question is under way. Called each second while somebody watches."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._due_s or (self._task is not None and not self._task.done()):
            return
        if now_s - self._due_s > SILENT_S:  # nobody watched for a while: what was heard before says nothing
            self._begun_s, self._answered_ms, self._by_event = now_s, None, {}
        self._due_s = now_s + EVERY_S
        self._task = asyncio.create_task(self._ask(), name="console alertmanager")

    def alarms(self, event_id: str) -> list[ActiveAlarm]:
        """The alarms of this event and those of no event; and one if nothing was heard for `SILENT_S`."""
        found = [*self._by_event.get(event_id, ()), *self._by_event.get(None, ())][:ALARMS_MAX]
        late_s = asyncio.get_running_loop().time() - self._begun_s
        if self._answered_ms is not None:
            late_s = (now_ms() - self._answered_ms) / 1000
        if self._task is not None and late_s > SILENT_S:
            found = [_silence(since_ms=now_ms() - round(late_s * 1000))]
        return found

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                alerts = await self._read()
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as failed:
            QUESTIONS.labels("alertmanager", "failed").inc()
            log.info("console.alertmanager_silent", error=type(failed).__name__)
            return
        self._by_event = {}
        for one in alerts:
            if one.labels.get("alertname") in BY_NAME:
                self._by_event.setdefault(one.labels.get("event_id"), []).append(_alarm(one))
        self._answered_ms = now_ms()
        QUESTIONS.labels("alertmanager", "answered").inc()

    async def _read(self) -> list[_Alert]:
        body = b""
        async with self._client.stream("GET", self._url) as response:
            response.raise_for_status()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > ANSWER_MAX_BYTES:
                    raise ValueError("the answer is too long")
        return TypeAdapter(list[_Alert]).validate_json(body)


def merged(own: Sequence[ActiveAlarm], others: Sequence[ActiveAlarm]) -> list[ActiveAlarm]:
    """Each alarm once, by the earlier of its times and in our own words if it is ours too; the most urgent first."""
    found = {alarm.name: alarm for alarm in own}
    for other in sorted(others, key=lambda alarm: alarm.since_ms):
        mine = found.setdefault(other.name, other)
        if other.since_ms < mine.since_ms:
            found[other.name] = mine.model_copy(update={"since_ms": other.since_ms})
    return sorted(found.values(), key=lambda alarm: URGENCY.index(alarm.severity))


def _alarm(alert: _Alert) -> ActiveAlarm:
    name = alert.labels["alertname"]
    summary = (alert.annotations.get("summary") or BY_NAME[name].meaning)[:SUMMARY_MAX]
    return active_alarm(name, summary=summary, since_ms=from_datetime(alert.startsAt))


def _silence(*, since_ms: int) -> ActiveAlarm:
    return ActiveAlarm(
        name="AlertmanagerSilent", severity="warning", since_ms=since_ms,
        summary="Alertmanager does not answer: only the alarms that the console decides itself are shown",
        do="Check `CONSOLE_ALERTMANAGER_URL`, and whether Alertmanager runs.",
    )  # fmt: skip
