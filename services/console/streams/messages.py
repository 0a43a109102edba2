"""The messages of a stream in the format of server-sent events, each encoded once for all who watch."""

from collections.abc import Sequence

import orjson
from pydantic import BaseModel

from shared.contracts.admin.approvals import ApprovalView
from shared.contracts.admin.console import ActiveAlarm, Change, Process, Snapshot, Vitals

RETRY_MS = 1_000
HEARTBEAT = b": beat\n\n"


def snapshot(found: Snapshot) -> bytes:
    """The first message of every stream, with the delay after which a browser reconnects."""
    return b"retry: %d\n" % RETRY_MS + _message(b"snapshot", found.model_dump_json().encode())


def vitals(found: Vitals) -> bytes:
    return b"id: %d\n" % found.at_ms + _message(b"vitals", found.model_dump_json().encode())


def alarms(found: Sequence[ActiveAlarm]) -> bytes:
    return _message(b"alarms", _list(found))


def processes(found: Sequence[Process]) -> bytes:
    return _message(b"processes", _list(found))


def change(found: Change) -> bytes:
    return _message(b"change", found.model_dump_json().encode())


def approvals(found: Sequence[ApprovalView]) -> bytes:
    return _message(b"approvals", _list(found))


def _list(found: Sequence[BaseModel]) -> bytes:
    return orjson.dumps([each.model_dump(mode="json") for each in found])


def _message(name: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, data)
