"""Counts where the Python processes of a suite spend processor time. Python loads it if its folder is in `PYTHONPATH`.

SIGUSR1 begins, SIGUSR2 ends and writes `{label: samples}` to `BENCH_SAMPLES/{pid}.json`; `{pid}.ready` says that a
process can be asked. A sample belongs to the request whose ASGI scope one of the frames has, the innermost first; else
to the task, by its name or by its first frame of ours; else to the event loop. Work that several requests share, such
as a batch, is a task of its own, and stands beside them.
"""

import asyncio
import json
import os
import re
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

INTERVAL_S = 0.001  # the kernel rounds up to its own tick
RUNNER, SERVER = "asyncio/runners.py", ("uvicorn", "/onsale/server/")
OURS, SERVICES = re.compile(r"/(services|shared|onsale|features)/(.+)\.py$"), ("services", "features")
PLACEHOLDERS = (
    (re.compile(r"^/(events|e)/(?!updates)[^/]+"), r"/\1/{event_id}"),
    (re.compile(r"/reservations/[^/]+"), "/reservations/{reservation_id}"),
    (re.compile(r"/sections/(?!updates)[^/]+"), "/sections/{section_id}"),
    (re.compile(r"^/orders/(?!quote|events|links)[^/]+"), "/orders/{reference}"),
    (re.compile(r"^/orders/events/[^/]+"), "/orders/events/{event_id}"),
    (re.compile(r"/[^/]*\d[^/]*"), "/{id}"),
)
_counts: Counter[str] = Counter()


def label_of(frame: FrameType | None) -> str:
    """What the stack that ends in this frame works for."""
    ours = service = ""
    while frame is not None and not frame.f_code.co_filename.endswith(RUNNER):
        scope = _scope(frame)
        if scope is not None:
            return f"{scope.get('method', '')} {template(scope['path'])}"
        if found := OURS.search(frame.f_code.co_filename):
            place = f"{found[2]} {frame.f_code.co_qualname}"
            ours, service = place, place if found[1] in SERVICES else service
        frame = frame.f_back
    return _task_name() or service or ours or "event loop"


def template(path: str) -> str:
    """The path as the OpenAPI document has it."""
    for pattern, placeholder in PLACEHOLDERS:
        path = pattern.sub(placeholder, path)
    return path


def _scope(frame: FrameType) -> Mapping[str, Any] | None:
    code = frame.f_code
    if _has(code, "scope"):
        found = frame.f_locals.get("scope")
    elif any(part in code.co_filename for part in SERVER) and _has(code, "self"):
        found = getattr(frame.f_locals.get("self"), "scope", None)
    else:
        return None
    return found if isinstance(found, dict) and found.get("type") == "http" and "path" in found else None


def _has(code: CodeType, name: str) -> bool:
    return name in code.co_varnames or name in code.co_freevars or name in code.co_cellvars


def _task_name() -> str:
    """The name that a loop was given."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return ""
    return "" if task is None or task.get_name().startswith("Task-") else f"loop {task.get_name()}"


def _sample(_: int, frame: FrameType | None) -> None:
    _counts[label_of(frame)] += 1


def install(folder: Path) -> None:
    """Waits for the signals."""

    def begin(*_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def end(*_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        (folder / f"{os.getpid()}.json").write_text(json.dumps(_counts))

    signal.signal(signal.SIGPROF, _sample)
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    (folder / f"{os.getpid()}.ready").touch()


if named := os.environ.get("BENCH_SAMPLES"):
    install(Path(named))
