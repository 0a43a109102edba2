"""Reads the console's stream of one event and keeps what a screen shows; it reconnects by itself."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
from pydantic import TypeAdapter, ValidationError

from onsale.errors import OperatorError
from onsale.server_sent_events import messages
from shared.contracts.admin.console import STREAM_PATH, ActiveAlarm, Change, Process, Snapshot, Vitals

CONNECT_S, SILENT_MAX_S, RETRY_S, CHANGES_KEPT = 5.0, 20.0, 1.0, 50
_ALARMS, _PROCESSES = TypeAdapter(list[ActiveAlarm]), TypeAdapter(list[Process])


@dataclass(frozen=True)
class Watched:
    """What is known now, and whether the console answers at this moment."""

    snapshot: Snapshot
    connected: bool = True


async def watched(url: str, key: str, event_id: str) -> AsyncGenerator[Watched, None]:
    """Each new state of the event, without end.

    Raises `OperatorError` if the console refuses, or does not answer at first.
    """
    last: Snapshot | None = None
    while True:
        try:
            async for last in _snapshots(url, key, event_id):
                yield Watched(last)
        except (httpx.HTTPError, ValidationError) as broken:
            if last is None:
                raise OperatorError(f"No console answers at {url}: is `onsale up` running?") from broken
        if last is not None:
            yield Watched(last, connected=False)
        await asyncio.sleep(RETRY_S)


async def _snapshots(url: str, key: str, event_id: str) -> AsyncIterator[Snapshot]:
    timeout = httpx.Timeout(CONNECT_S, read=SILENT_MAX_S)
    headers = {"authorization": f"Bearer {key}", "accept": "text/event-stream"}
    async with (
        httpx.AsyncClient(trust_env=False, timeout=timeout) as client,
        client.stream("GET", url + STREAM_PATH.format(event_id=event_id), headers=headers) as response,
    ):
        if response.is_server_error:  # a balancer that finds no console answers so
            response.raise_for_status()
        if response.is_error:
            await response.aread()
            raise OperatorError(_detail(response))
        snapshot: Snapshot | None = None
        async for name, data, *_ in messages(response.aiter_lines()):
            snapshot = applied(snapshot, name, data)
            if snapshot is not None:
                yield snapshot


def applied(snapshot: Snapshot | None, name: str, data: str) -> Snapshot | None:
    """The snapshot after a message; none before the first one."""
    if name == "snapshot":
        return Snapshot.model_validate_json(data)
    if snapshot is None:
        return None
    changed: dict[str, Any] = {}
    if name == "vitals":
        changed["vitals"] = Vitals.model_validate_json(data)
    elif name == "alarms":
        changed["alarms"] = _ALARMS.validate_json(data)
    elif name == "processes":
        changed["processes"] = _PROCESSES.validate_json(data)
    elif name == "change":
        changed["changes"] = [Change.model_validate_json(data), *snapshot.changes][:CHANGES_KEPT]
    return snapshot.model_copy(update=changed)


def _detail(response: httpx.Response) -> str:
    try:
        return str(orjson.loads(response.content)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"The console answered {response.status_code}."
