"""`onsale keys`: rotate what tokens are signed with, while fans wait. Services of this data directory obey in seconds.

Secrets are never shown. Every change is kept with the keys: when, who, what.
"""

import getpass
import os
import secrets
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from onsale.commands.context import err, out
from onsale.local import key_file
from onsale.local.process import EngineTrouble
from onsale.maintenance.new_secrets import new
from shared.security.key_rotation import OVERLAPS, Change, Purpose

RELOAD_S = 5  # services look every second
BREAKS: dict[Purpose, str] = {
    "queue_token": "Every place in a line whose token it signed is lost to its fan: they must join again, at the end.",
    "pass": "Passes it signed are refused: fans who are choosing must fetch their pass again, and origins too.",
    "service": "Services that have not read the file yet are refused by the others for a moment.",
    "ticket": "Printed tickets it signed are refused at the door: fans must show the order page, which signs anew.",
}
HASTE = {
    "queue_token": "A process that cannot read the file within seconds will refuse new tokens.",
    "pass": "Origins that keep our public keys for up to 5 minutes will refuse new passes until they look again.",
    "service": "A process that cannot read the file within seconds will be refused by the others.",
    "ticket": "Scanners that have not loaded the public keys again will refuse new tickets.",
}
app = typer.Typer(no_args_is_help=True, help="Rotate the keys that tokens are signed with, while fans wait.")
app.command("new")(new)
Named = Literal["queue-token", "pass", "service", "ticket"]
DataDir = Annotated[Path, typer.Option("--data-dir", help="The data directory of `onsale up`.")]
PurposeName = Annotated[Named, typer.Argument(metavar="PURPOSE", help="queue-token, pass, service or ticket.")]
DATA_DIR = Path(".onsale")


def _purpose(name: Named) -> Purpose:
    purposes: dict[Named, Purpose] = {
        "queue-token": "queue_token", "pass": "pass", "service": "service", "ticket": "ticket"
    }  # fmt: skip
    return purposes[name]


@app.command()
def show(data_dir: DataDir = DATA_DIR) -> None:
    """Which keys there are, what each is doing, and until when. No secrets."""
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
    now: Annotated[bool, typer.Option("--now", help="Sign with the new key at once; the old stays accepted.")] = False,
) -> None:
    """Announce a new key. It signs once everybody accepts it; the old one is accepted while what it signed lives."""
    purpose, at_s = _purpose(name), int(time.time())
    signs_from_s = at_s + (RELOAD_S if now else OVERLAPS[purpose].announce_s)
    with key_file.changing(data_dir) as keys:
        newest, stage = keys.stages(purpose, at_s)[-1]
        if stage == "announced" and not now:
            raise EngineTrouble(f"{name}: {newest.kid} is announced already; it signs from {_at(newest.signs_from_s)}.")
        if stage == "announced":
            new = keys.bring_forward(purpose, signs_from_s=signs_from_s)
        else:
            new = keys.rotate(purpose, secrets.token_bytes(32), signs_from_s=signs_from_s)
        keys.note(_change(at_s, "rotate --now" if now else "rotate", purpose, new.kid))
    if now:
        err.print(f"[yellow]{HASTE[purpose]}[/]", soft_wrap=True)
    out.print(f"{name}: {new.kid} is announced and signs from {_at(new.signs_from_s)}.")


@app.command()
def retire(
    name: PurposeName,
    kid: Annotated[str, typer.Argument(help="As `onsale keys show` names it.")],
    data_dir: DataDir = DATA_DIR,
    now: Annotated[bool, typer.Option("--now", help="It has leaked: nobody accepts it any more.")] = False,
) -> None:
    """End a key before its time. It must have stopped signing: rotate first."""
    purpose, at_s = _purpose(name), int(time.time())
    with key_file.changing(data_dir) as keys:
        stages = {key.kid: stage for key, stage in keys.stages(purpose, at_s)}
        if kid not in stages:
            raise EngineTrouble(f"{name}: there is no key {kid}; there are {', '.join(stages)}.")
        if stages[kid] != "retiring":
            raise EngineTrouble(f"{name}: {kid} is {stages[kid]}; rotate first, and wait until another key signs.")
        if not now:
            until = next(_at(key.gone_at_s) for key in keys.rings[purpose] if key.kid == kid)
            raise EngineTrouble(f"{name}: {kid} goes by itself at {until}. To end it, say --now. {BREAKS[purpose]}")
        err.print(f"[yellow]{BREAKS[purpose]}[/]", soft_wrap=True)
        keys.end(purpose, kid, at_s=at_s)
        keys.note(_change(at_s, "retire --now", purpose, kid))
    out.print(f"{name}: {kid} is gone.")


def _change(at_s: int, action: str, purpose: Purpose, kid: str) -> Change:
    return Change(at_s=at_s, by=_who(), action=action, purpose=purpose, kid=kid)


def _who() -> str:
    """The user's name; in a container there may be none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _at(at_s: int | None) -> str:
    return "-" if at_s is None else datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
