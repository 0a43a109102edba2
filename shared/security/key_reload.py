"""Keeps a service's keyrings as the key file says, while it runs: a change is obeyed within seconds, without a restart.

A file that cannot be used changes nothing: it is refused in one line of the log, and the keys of before stay.
"""

import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from pydantic_settings import BaseSettings

from shared.runtime.background import Loops
from shared.runtime.logging import data
from shared.security.key_rotation import BadKeys, Purpose, RotatingKeys
from shared.security.tokens import Keyring

log = logging.getLogger("onsale.maintenance.keys")
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
LOOK_S = 1.0
FIELDS: dict[str, tuple[Purpose, Callable[[Keyring], Keyring]]] = {
    "queue_token_keys": ("queue_token", lambda ring: ring),
    "pass_keys": ("pass", lambda ring: ring),
    "pass_public_keys": ("pass", Keyring.public),
    "service_keys": ("service", lambda ring: ring),
    "ticket_keys": ("ticket", lambda ring: ring),
    "ticket_public_keys": ("ticket", Keyring.public),
}


def from_file(settings: BaseSettings) -> list[str]:
    """The settings that the file decides: keyrings that nobody gave otherwise."""
    return [name for name in FIELDS if name in type(settings).model_fields and name not in settings.model_fields_set]


def rings_of(keys: RotatingKeys, names: list[str], *, now_s: float) -> dict[str, Keyring]:
    """The keyrings of these settings at this moment. Raises `BadKeys`."""
    wanted = {name: FIELDS[name] for name in names if FIELDS[name][0] in keys.rings}
    return {name: half(keys.keyring(purpose, now_s)) for name, (purpose, half) in wanted.items()}


class KeyWatch:
    """Looks at the file now and then, and at the clock: a key's stage changes without the file."""

    def __init__(self, path: Path, settings: BaseSettings, *, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._rings: dict[str, Keyring] = {name: getattr(settings, name) for name in from_file(settings)}
        self._seen: tuple[int, int, int] | None = None
        self._keys: RotatingKeys | None = None

    async def look(self) -> None:
        """Reads the file if it was written since, and brings every keyring to its stage of now."""
        seen = _signature(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                keys = RotatingKeys.read(self._path)
                rings_of(keys, list(self._rings), now_s=self._clock())
            except BadKeys as bad:
                log.error("keys.refused", extra=data(file=str(self._path), why=str(bad)))
            else:
                self._keys = keys
        if self._keys is not None:
            self._follow(self._keys)

    def _follow(self, keys: RotatingKeys) -> None:
        for name, ring in rings_of(keys, list(self._rings), now_s=self._clock()).items():
            before = self._rings[name]
            if list(before.keys.items()) == list(ring.keys.items()):
                continue
            last = next((c for c in reversed(keys.history) if c.purpose == FIELDS[name][0]), None)
            log.warning("keys.changed", extra=data(
                setting=name, before=list(before.keys), now=list(ring.keys), signs=ring.kid,
                last_change=last.model_dump() if last else None,
            ))  # fmt: skip
            before.replace(ring)


def with_keys(lifespan: Lifespan, path: Path | None, settings: BaseSettings) -> Lifespan:
    """The same lifespan; if there is a key file, it is watched meanwhile."""
    if path is None:
        return lifespan
    watch = KeyWatch(path, settings)

    @asynccontextmanager
    async def watching(app: FastAPI) -> AsyncIterator[None]:
        async with lifespan(app), Loops() as loops:
            loops.every(LOOK_S, watch.look, name="keys")
            yield

    return watching


def _signature(path: Path) -> tuple[int, int, int] | None:
    """What changes whenever the file is written: an atomic write makes a new inode."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - the numbers are wanted, not the path
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
