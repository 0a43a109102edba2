"""The secrets of one data directory: generated once, readable by their owner only, handed to services as settings."""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from onsale.secret_file import write_secret
from shared.tokens import Keyring

KEY_FILE, ADMIN_KEY_FILE = "keys.json", "admin.key"
PURPOSES = ("service", "queue_token", "pass", "order_token", "checkout", "customer", "sandbox_webhook", "user_holder")


def service_secrets(data_dir: Path) -> dict[str, str]:
    """`ONSALE_…_KEYS` for every purpose, and the public half of the pass keys for those who only verify."""
    path = data_dir / KEY_FILE
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    missing = [purpose for purpose in PURPOSES if purpose not in known]
    if missing:
        known |= {purpose: Keyring({"k1": secrets.token_bytes(32)}).text() for purpose in missing}
        write_secret(path, json.dumps(known, indent=2) + "\n")
    settings = {f"ONSALE_{purpose.upper()}_KEYS": text for purpose, text in known.items()}
    settings["ONSALE_PASS_PUBLIC_KEYS"] = Keyring.parse(known["pass"]).public().text()
    return settings


def admin_key(data_dir: Path, environ: Mapping[str, str] = os.environ) -> str:
    """The operator's key: from `ONSALE_ADMIN_KEY`, else from the data directory, made on first use."""
    if key := environ.get("ONSALE_ADMIN_KEY"):
        return key
    path = data_dir / ADMIN_KEY_FILE
    if not path.exists():
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_secret(path, secrets.token_urlsafe(32) + "\n")
    return path.read_text().strip()
