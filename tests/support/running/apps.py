"""Apps of services, used by one test after the other: to build the routes of an app takes longer than most tests.

What a test leaves behind is in the state that the lifespan opens, and goes with it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar

from fastapi import FastAPI
from pydantic import SecretStr

from shared.process.settings import ServiceSettings
from shared.security.auth import WrongKeys

T = TypeVar("T")
KEPT_MAX = 8
_kept: dict[str, FastAPI] = {}


@contextmanager
def borrowed_app(create_app: Callable[..., FastAPI], settings: ServiceSettings, tuning: object) -> Iterator[FastAPI]:
    """An app with these settings that nobody else uses meanwhile. One that still works at the end, or whose keys a test
    has replaced, is not used again.
    """
    key = f"{create_app.__module__} {_values(settings)} {tuning!r}"
    app = _kept.pop(key, None) or create_app(settings, tuning)
    app.state.wrong_keys = WrongKeys()
    yield app
    load = app.state.load  # a gateway measures none
    works = load is not None and (load.looks.in_flight or load.purchases.to_do())
    if not works and key == f"{create_app.__module__} {_values(app.state.settings)} {tuning!r}":
        _kept[key] = app
    while len(_kept) > KEPT_MAX:
        del _kept[next(iter(_kept))]


def _values(settings: ServiceSettings) -> str:
    """All values, the secret ones too."""
    values = [value.get_secret_value() if isinstance(value, SecretStr) else value for _, value in settings]
    return f"{values!r} {settings.admin_keys.hashed()}"


def parted(tuning: type[T], given: Mapping[str, Any]) -> tuple[T, dict[str, Any]]:
    """The tuning with those of the given fields that are its own, and the others, which are settings."""
    own = {field.name for field in fields(tuning)}  # type: ignore[arg-type]
    return tuning(**{n: v for n, v in given.items() if n in own}), {n: v for n, v in given.items() if n not in own}
