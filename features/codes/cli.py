"""`onsale codes`: create, list and revoke the access codes that let fans join a lane, for a presale or for guests."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onsale.atomic_file import atomic_write
from onsale.cli.context import AdminCommands, Before, EventId, Reason, out, print_page, rfc3339, with_admin
from onsale.errors import OperatorError

if TYPE_CHECKING:
    from onsale.admin_client import AdminClient

CREATED_AT_ONCE, REVOKED_AT_ONCE = 10_000, 1_000

app = AdminCommands(help="Create, list and revoke the access codes of a lane: for a presale, for guests.")


@app.command("create")
def create(
    event_id: EventId,
    lane: Annotated[int, typer.Option(min=1, max=15, help="The lane that the codes let fans join.")],
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many codes.")] = 1,
    uses: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many fans may join with one code.")] = 1,
    file: Annotated[
        Path | None,
        typer.Option(help="Write the codes to this new file, readable by you alone, instead of the screen."),
    ] = None,
    reason: Reason = None,
) -> None:
    """Create access codes. They are shown once: the suite keeps only their hashes.

    Example: onsale codes create arena-2026 --lane 1 --count 500 --file codes.txt
    """
    if file is not None and file.exists():
        raise OperatorError(f"{file} is there already; codes are never written over something else.")
    created: list[str] = []

    async def create_all(admin: "AdminClient") -> None:
        while len(created) < count:
            part = min(CREATED_AT_ONCE, count - len(created))
            body = {"lane": lane, "count": part, "uses": uses, "reason": reason}
            created.extend((await admin.create_access_codes(event_id, body)).codes)

    try:
        with_admin(create_all)
    finally:  # codes that were created are shown even if a later request failed: nobody can read them again
        if created:
            _show(event_id, created, file)


def _show(event_id: str, created: list[str], file: Path | None) -> None:
    text = "\n".join(created) + "\n"
    if file is None:
        sys.stdout.write(text)
    else:
        atomic_write(file, text)
        out.print(f"{event_id}: {len(created)} codes in {file}")


@app.command("list")
def list_codes(event_id: EventId, before: Before = None) -> None:
    """List access codes by id, with lane and uses. The codes themselves cannot be read again."""
    found = with_admin(lambda admin: admin.list_access_codes(event_id, before=before))
    print_page(found, ("id", "lane", "uses", "made at", "revoked at"), (
        (code.code_id, str(code.lane), f"{code.uses} of {code.uses_max}", rfc3339(code.created_at),
         rfc3339(code.revoked_at))
        for code in found.codes
    ), title=event_id)  # fmt: skip


@app.command("revoke")
def revoke(
    event_id: EventId,
    code_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID…", help="Ids, as `onsale codes list` shows them.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file of codes as they were created, one a line.")] = None,
    reason: Reason = None,
) -> None:
    """Revoke access codes. Places that fans took with them stay.

    Example: onsale codes revoke arena-2026 3f1c9a5e02b7d864
    """
    bodies = [{"code_ids": code_ids}] if code_ids else []
    codes = file.read_text().split() if file is not None else []
    bodies += [{"codes": codes[n : n + REVOKED_AT_ONCE]} for n in range(0, len(codes), REVOKED_AT_ONCE)]
    if not bodies:
        raise OperatorError("Name the codes to revoke: ids, or --file.")

    async def revoked(admin: "AdminClient") -> int:
        answers = [await admin.revoke_access_codes(event_id, {**body, "reason": reason}) for body in bodies]
        return sum(answer.revoked for answer in answers)

    out.print(f"{event_id}: {with_admin(revoked)} codes revoked")
