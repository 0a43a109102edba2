"""The secrets of a data directory: created once, readable by their owner only, passed to services as settings.

Keys that rotate are kept with their stages; services read those from the file itself and watch it.
"""

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onsale.atomic_file import atomic_write
from onsale.errors import OperatorError
from shared.security.key_rotation import OVERLAPS, BadKeys, Key, RotatingKeys
from shared.security.tokens import Keyring, b64

KEY_FILE, LOCK_FILE = "keys.json", "keys.lock"
PURPOSES = ("holder", "order_token", "checkout", "customer", "sandbox_webhook")
ROTATING = "rotating"


def service_secrets(data_dir: Path) -> dict[str, str]:
    """`ONSALE_…_KEYS` for every purpose whose keys do not rotate, and `ONSALE_KEYS_FILE` for the others."""
    path = data_dir / KEY_FILE
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    missing = [purpose for purpose in PURPOSES if purpose not in known]
    rings = known.setdefault(ROTATING, {"rings": {}})["rings"]
    unringed = [purpose for purpose in OVERLAPS if purpose not in rings]
    if missing or unringed:
        known |= {purpose: Keyring({"k1": secrets.token_bytes(32)}).text() for purpose in missing}
        rings |= {purpose: _first_ring(known.pop(purpose, None)) for purpose in unringed}
        atomic_write(path, json.dumps(known, indent=2) + "\n")
    settings = {f"ONSALE_{purpose.upper()}_KEYS": known[purpose] for purpose in PURPOSES}
    return settings | {"ONSALE_KEYS_FILE": str(path.absolute())}


def _first_ring(before: str | None) -> list[dict[str, Any]]:
    """A ring of one new key, or of the keys that an older version of this file had, newest first."""
    keyring = Keyring.parse(before) if before else Keyring({"k1": secrets.token_bytes(32)})
    oldest_first = reversed(list(keyring.keys.items()))
    return [
        Key(kid=kid, secret=b64(raw), signs_from_s=at_s).model_dump() for at_s, (kid, raw) in enumerate(oldest_first)
    ]


def rotating_keys(data_dir: Path) -> RotatingKeys:
    """The keys that rotate. Raises `OperatorError` when the file is missing or unusable."""
    path = data_dir / KEY_FILE
    try:
        return RotatingKeys.read(path)
    except BadKeys as bad:
        raise OperatorError(f"{path}: {bad}.") from bad


@contextmanager
def keys_to_change(data_dir: Path) -> Iterator[RotatingKeys]:
    """The keys, locked for one command to change; written whole at the end, without those that have expired."""
    rotating_keys(data_dir)
    descriptor = os.open(data_dir / LOCK_FILE, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        keys = rotating_keys(data_dir)
        keys.forget(time.time())
        yield keys
        path = data_dir / KEY_FILE
        known = json.loads(path.read_text()) | {ROTATING: keys.model_dump(exclude={"public"})}
        atomic_write(path, json.dumps(known, indent=2) + "\n")
    finally:
        os.close(descriptor)
