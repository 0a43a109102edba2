"""Lanes and their codes at the command line: how the calls were shared, and codes made, listed and revoked."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from onsale.commands.client import Refused
from onsale.commands.context import DATA_DIR, DataDir, EventId, Url, ask, out
from onsale.local.secret_file import write_secret

CODES_AT_ONCE = 10_000

codes = typer.Typer(no_args_is_help=True, help="Codes that open a lane: for a presale, for guests.")
Reason = Annotated[str | None, typer.Option(help="Kept in the audit trail.")]


def lanes_table(lanes: Mapping[str, Mapping[str, Any]]) -> Table:
    """Each lane's share by weight beside what it was given. Contested calls are those of turns in which every lane had
    somebody to call: only there a share can be seen.
    """
    table = Table("lane", "name", "weight", "waiting", "calls", "contested calls", "due by weight", title="Lanes")
    total = sum(lane["weight"] for lane in lanes.values())
    for number, lane in lanes.items():
        waiting = max(0, lane["tail_seq"] - lane["head_seq"])
        weight = f"{lane['weight']} ({lane['weight'] / total:.0%})"
        row = (number, lane["name"], weight, waiting, lane["calls"], lane["contested"], f"{lane['due']:.1f}")
        table.add_row(*map(str, row))
    return table


@codes.command("create")
def create(
    event_id: EventId,
    lane: Annotated[int, typer.Option(min=1, max=15, help="The lane they open.")],
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many codes.")] = 1,
    uses: Annotated[int, typer.Option(min=1, max=1_000_000, help="Places each is good for.")] = 1,
    file: Annotated[
        Path | None, typer.Option(help="Write them here, for your eyes only, instead of the screen.")
    ] = None,
    reason: Reason = None,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Make codes. They are shown this once: the suite keeps only their hashes."""
    if file is not None and file.exists():
        raise Refused(f"{file} is there already; codes are never written over something else.")
    made: list[str] = []
    try:
        while len(made) < count:
            part = min(CODES_AT_ONCE, count - len(made))
            body = {"lane": lane, "count": part, "uses": uses, "reason": reason}
            made += _post(url, data_dir, _path(event_id), body)["codes"]
    finally:  # what was made is told, whatever happens to the rest
        if made:
            _tell(event_id, made, file)


def _tell(event_id: str, made: list[str], file: Path | None) -> None:
    text = "\n".join(made) + "\n"
    if file is None:
        sys.stdout.write(text)
    else:
        write_secret(file, text)
        out.print(f"{event_id}: {len(made)} codes in {file}")


@codes.command("list")
def list_codes(
    event_id: EventId,
    page: Annotated[int, typer.Option(min=1, help="Newest codes are on the first page.")] = 1,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """What is known of the codes: their ids, lanes and uses. The codes themselves nobody can read again."""
    found = ask(url, data_dir, lambda admin: admin.call("GET", f"{_path(event_id)}?page={page}"))
    table = Table("id", "lane", "uses", "made at", "revoked at", title=f"{found['total']} codes")
    for code in found["codes"]:
        used = f"{code['uses']} of {code['uses_max']}"
        table.add_row(code["code_id"], str(code["lane"]), used, code["created_at"], code["revoked_at"] or "")
    out.print(table)


@codes.command("revoke")
def revoke(
    event_id: EventId,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ID…", help="Ids as `onsale codes list` shows them.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file of codes as they were made, one a line.")] = None,
    reason: Reason = None,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Take codes back; places they opened stay."""
    bodies = [{"code_ids": names}] if names else []
    written = file.read_text().split() if file is not None else []
    bodies += [{"codes": written[start : start + 1000]} for start in range(0, len(written), 1000)]
    if not bodies:
        raise Refused("Say which: ids, or --file.")
    revoked = 0
    for body in bodies:
        revoked += _post(url, data_dir, f"{_path(event_id)}/revoke", {**body, "reason": reason})["revoked"]
    out.print(f"{event_id}: {revoked} codes revoked")


def _path(event_id: str) -> str:
    return f"/admin/queue/events/{event_id}/codes"


def _post(url: str | None, data_dir: Path, path: str, body: dict[str, Any]) -> Any:
    return ask(url, data_dir, lambda admin: admin.call("POST", path, body))
