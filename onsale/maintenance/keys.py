"""`onsale keys`: shows, rotates and retires the keys that sign tokens. Services read a change within seconds.

Secrets are never shown. Every change is recorded with the keys: when, who, what.
"""

import getpass
import os
import secrets
import time
from datetime import UTC, datetime
from typing import Annotated, Literal, cast

import typer
from rich.table import Table

from onsale.cli.context import DATA_DIR, DataDir, err, out
from onsale.errors import OperatorError
from onsale.local import key_file
from onsale.maintenance import service_secrets
from onsale.maintenance.new_secrets import new, split
from shared.security.key_rotation import OVERLAPS, READ_EVERY_S, KeyChange, Purpose

READ_WITHIN_S = int(2 * READ_EVERY_S)  # every process has read the file by then
RETIRE_WARNINGS: dict[Purpose, str] = {
    "queue_token": "Every place in a line whose token it signed is lost to its fan: they must join again, at the end.",
    "pass": "Passes it signed are refused: fans who are choosing must fetch their pass again, and origins too.",
    "service": "Services that have not read the file yet are refused by the others for a moment.",
    "ticket": "Printed tickets it signed are refused at the entrance: fans must show the order page, which signs anew.",
}
ROTATE_NOW_WARNINGS = {
    "queue_token": "A process that cannot read the file within seconds will refuse new tokens.",
    "pass": "Origins that keep our public keys for up to 5 minutes will refuse new passes until they fetch them again.",
    "service": "A process that cannot read the file within seconds will be refused by the others.",
    "ticket": "Scanners that have not loaded the public keys again will refuse new tickets.",
}
app = typer.Typer(
    no_args_is_help=True, help="Show, rotate and retire the keys that sign tokens; create those of an installation."
)
app.command("new")(new)
app.command("split")(split)
Named = Literal["queue-token", "pass", "service", "ticket"]
PurposeName = Annotated[Named, typer.Argument(metavar="PURPOSE", help="queue-token, pass, service or ticket.")]


def _purpose(name: Named) -> Purpose:
    return cast("Purpose", name.replace("-", "_"))


@app.command()
def show(data_dir: DataDir = DATA_DIR) -> None:
    """Show the keys, their stages and until when each is accepted. Shows no secrets."""
    keys, now_s = key_file.rotating_keys(data_dir), time.time()
    table = Table("purpose", "kid", "stage", "signs from", "accepted until")
    for purpose in keys.rings:
        for key, stage in keys.stages(purpose, now_s):
            since = _at(key.signs_from_s) if key.signs_from_s > 1 else "the beginning"
            table.add_row(purpose.replace("_", "-"), key.kid, stage, since, _at(key.gone_at_s))
    out.print(table)
    for change in keys.history[-5:]:
        out.print(f"[dim]{_at(change.at_s)}  {change.by}  {change.action}  {change.purpose} {change.kid}[/]")


@app.command()
def rotate(
    name: PurposeName,
    data_dir: DataDir = DATA_DIR,
    now: Annotated[
        bool, typer.Option("--now", help="Sign with the new key in ten seconds; the old one stays accepted.")
    ] = False,
) -> None:
    """Rotate: announce a new key. It signs once all services accept it; the old key is accepted until its tokens end.

    Example: onsale keys rotate pass
    """
    purpose, at_s = _purpose(name), int(time.time())
    signs_from_s = at_s + (READ_WITHIN_S if now else OVERLAPS[purpose].announce_s)
    with key_file.keys_to_change(data_dir) as keys:
        newest, stage = keys.stages(purpose, at_s)[-1]
        if stage == "announced" and not now:
            raise OperatorError(f"{name}: {newest.kid} is announced already; it signs from {_at(newest.signs_from_s)}.")
        if stage == "announced":
            new = keys.bring_forward(purpose, signs_from_s=signs_from_s)
        else:
            new = keys.rotate(purpose, secrets.token_bytes(32), signs_from_s=signs_from_s)
        keys.record(_change(at_s, "rotate --now" if now else "rotate", purpose, new.kid))
    service_secrets.refresh(data_dir)
    if now:
        err.print(f"[yellow]{ROTATE_NOW_WARNINGS[purpose]}[/]", soft_wrap=True)
    out.print(f"{name}: {new.kid} is announced and signs from {_at(new.signs_from_s)}.")


@app.command()
def retire(
    name: PurposeName,
    kid: Annotated[str, typer.Argument(help="The key's id, as `onsale keys show` prints it.")],
    data_dir: DataDir = DATA_DIR,
    now: Annotated[bool, typer.Option("--now", help="Refuse the key at once, as when it has leaked.")] = False,
) -> None:
    """Retire a key early. It must have stopped signing: rotate first.

    Example: onsale keys retire pass k1 --now
    """
    purpose, at_s = _purpose(name), int(time.time())
    with key_file.keys_to_change(data_dir) as keys:
        stages = {key.kid: stage for key, stage in keys.stages(purpose, at_s)}
        if kid not in stages:
            raise OperatorError(f"{name}: there is no key {kid}; there are {', '.join(stages)}.")
        if stages[kid] != "retiring":
            raise OperatorError(f"{name}: {kid} is {stages[kid]}; rotate first, and wait until another key signs.")
        if not now:
            until = next(_at(key.gone_at_s) for key in keys.rings[purpose] if key.kid == kid)
            raise OperatorError(
                f"{name}: {kid} ends by itself at {until}. To end it now, add --now. {RETIRE_WARNINGS[purpose]}"
            )
        err.print(f"[yellow]{RETIRE_WARNINGS[purpose]}[/]", soft_wrap=True)
        keys.end(purpose, kid, at_s=at_s)
        keys.record(_change(at_s, "retire --now", purpose, kid))
    service_secrets.refresh(data_dir)
    out.print(f"{name}: {kid} is retired.")


def _change(at_s: int, action: str, purpose: Purpose, kid: str) -> KeyChange:
    return KeyChange(at_s=at_s, by=_who(), action=action, purpose=purpose, kid=kid)


def _who() -> str:
    """The user's name, or the id where it has none, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _at(at_s: int | None) -> str:
    return "-" if at_s is None else datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
