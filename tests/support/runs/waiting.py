"""Where the tasks of a test waited that ran out of its time: the stack of a loop that only waits says nothing."""

import asyncio
from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    except BaseException as failed:
        if "Timeout" in str(failed):
            found = [f"task {task.get_name()}:\n{waits_at(task.get_coro())}" for task in waiting()]
            item.add_report_section("call", "waiting tasks", "\n".join(found))
        raise


def waiting() -> list[asyncio.Task[Any]]:
    """The tasks that have not ended, of loops that run no more, too."""
    return [task for task in list(asyncio.tasks._all_tasks) if not task.done()]  # type: ignore[attr-defined]


def waits_at(awaited: Any) -> str:
    """The lines at which this coroutine and those inside it wait, the outermost first."""
    lines = []
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return "\n".join(lines)
