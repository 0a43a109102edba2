"""Reloads a service's keyrings from the key file while it runs: a change takes effect within seconds, without a
restart.

An unusable file changes nothing: it is rejected with one line in the log, and the previous keys stay.
"""

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from pydantic_settings import BaseSettings

from shared.concurrency.background import Loops, Quiet
from shared.runtime.logging import get_logger
from shared.security.key_rotation import READ_EVERY_S, BadKeys, Purpose, RotatingKeys
from shared.security.tokens import Keyring

log = get_logger("onsale.maintenance.keys")
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
FIRST_S = 1.0  # after the start
FIELDS: dict[str, Purpose] = {
    "queue_token_keys": "queue_token",
    "pass_keys": "pass",
    "service_keys": "service",
    "ticket_keys": "ticket",
}
PUBLIC_FIELDS: dict[str, Purpose] = {"pass_public_keys": "pass", "ticket_public_keys": "ticket"}


def from_file(settings: BaseSettings) -> list[str]:
    """The settings taken from the file: keyrings that are not set otherwise."""
    return [
        name
        for name in {**FIELDS, **PUBLIC_FIELDS}
        if name in type(settings).model_fields and name not in settings.model_fields_set
    ]


def rings_of(keys: RotatingKeys, names: list[str], *, now_s: float) -> dict[str, Keyring]:
    """The keyrings of these settings at `now_s`. Raises `BadKeys`."""
    return {
        **{n: keys.keyring(FIELDS[n], now_s) for n in names if FIELDS.get(n) in keys.rings},
        **{
            n: keys.public_keyring(PUBLIC_FIELDS[n], now_s)
            for n in names
            if PUBLIC_FIELDS.get(n) in {**keys.rings, **keys.public}
        },
    }


class KeyReloader:
    """Checks the file and the clock: the stage of a key changes without a change of the file."""

    def __init__(self, path: Path, settings: BaseSettings, *, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._rings: dict[str, Keyring] = {name: getattr(settings, name) for name in from_file(settings)}
        self._signature: tuple[int, int, int] | None = None
        self._keys: RotatingKeys | None = None

    async def reload(self) -> Quiet:
        """Reads the file if it has changed, and updates every keyring to the present stages."""
        signature = _signature(self._path)
        if signature != self._signature:
            self._signature = signature
            try:
                keys = RotatingKeys.read(self._path)
                rings_of(keys, list(self._rings), now_s=self._clock())
            except BadKeys as bad:
                log.error("keys.rejected", file=str(self._path), reason=str(bad))
            else:
                self._keys = keys
        if self._keys is not None:
            self._apply(self._keys)
        return Quiet(READ_EVERY_S)

    def _apply(self, keys: RotatingKeys) -> None:
        for name, ring in rings_of(keys, list(self._rings), now_s=self._clock()).items():
            before = self._rings[name]
            if list(before.keys.items()) == list(ring.keys.items()):
                continue
            purpose = {**FIELDS, **PUBLIC_FIELDS}[name]
            last = next((c for c in reversed(keys.history) if c.purpose == purpose), None)
            log.warning("keys.changed", setting=name, before=list(before.keys), now=list(ring.keys), signs=ring.kid,
                last_change=last.model_dump() if last else None)  # fmt: skip
            before.replace(ring)


def with_key_reload(lifespan: Lifespan, path: Path | None, settings: BaseSettings) -> Lifespan:
    """The same lifespan, with the key file watched, if there is one."""
    if path is None:
        return lifespan
    reloader = KeyReloader(path, settings)

    @asynccontextmanager
    async def reloading(app: FastAPI) -> AsyncIterator[None]:
        async with lifespan(app), Loops() as loops:
            loops.every(FIRST_S, reloader.reload, name="keys")
            yield

    return reloading


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Changes with every write of the file: an atomic write creates a new inode."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - a plain stat
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
