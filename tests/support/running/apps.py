"""Apps of services, used by one test after the other: to build the routes of an app takes longer than most tests.

What a test leaves behind is in the state that the lifespan opens, and goes with it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from shared.process.settings import ServiceSettings
from shared.security.auth import WrongKeys

_free: dict[str, list[FastAPI]] = {}


@contextmanager
def borrowed_app(create_app: Callable[..., FastAPI], settings: ServiceSettings, tuning: object) -> Iterator[FastAPI]:
    """An app with these settings that nobody else uses meanwhile. One that still works at the end, or whose keys a test
    has replaced, is not used again.
    """
    before = repr(settings)
    free = _free.setdefault(f"{create_app.__module__} {before} {tuning!r}", [])
    app = free.pop() if free else create_app(settings, tuning)
    app.state.wrong_keys = WrongKeys()
    yield app
    works = any(load.in_flight for load in getattr(app.state, "load", ()))  # a gateway sheds no load
    if not works and repr(app.state.settings) == before:
        free.append(app)
