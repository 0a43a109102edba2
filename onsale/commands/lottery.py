"""`onsale lottery`: drawing one as an operator, and checking one as anybody."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import httpx
import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.table import Table

from onsale.commands.client import Admin, Refused
from onsale.commands.lottery_check import Asked, Check, check
from onsale.local import key_file
from onsale.local.engines import suite_url
from shared.contracts.lottery import EntryProof, PublishedLottery

lottery = typer.Typer(no_args_is_help=True, help="The lottery of a pre-queue: draw it, check it.")
Document = TypeVar("Document", bound=BaseModel)
DATA_DIR = Path(".onsale")
DOCUMENT_MAX_BYTES = 1024 * 1024

DataDir = Annotated[Path, typer.Option("--data-dir", help="Engines' data, keys and logs.")]
Url = Annotated[str | None, typer.Option("--url", help="Where the suite answers; as its data directory says.")]
SAID = {True: "[green]yes[/]", False: "[red]NO[/]", None: "[dim]open[/]"}


@lottery.command("draw")
def draw(
    event_id: Annotated[str, typer.Argument(metavar="EVENT_ID", help="The event, as in its file.")],
    public_value: Annotated[str, typer.Option("--public-value", help="The value that was named in advance.")],
    reason: Annotated[str, typer.Option(help="Kept in the audit trail.")] = "onsale lottery draw",
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Draw the order of the line, once entry has closed and the public value is known. The seed is revealed.

    It is drawn once: the same value again changes nothing, another is refused.
    """

    async def work(client: httpx.AsyncClient) -> Any:
        admin = Admin(client, url or suite_url(data_dir), key_file.admin_key(data_dir))
        body = {"public_value": public_value, "reason": reason}
        return await admin.call("POST", f"/admin/queue/events/{event_id}/lottery/draw", body)

    told = PublishedLottery.model_validate(_with_client(work))
    entrants_n = sum(of.n for of in told.entrants.values())
    Console(highlight=False).print(
        f"{event_id}: drawn, {entrants_n:,} places. Check it: onsale lottery verify {event_id}"
    )


@lottery.command("show")
def show(
    where: Annotated[str, typer.Argument(metavar="EVENT_ID|FILE|URL")], url: Url = None, data_dir: DataDir = DATA_DIR
) -> None:
    """Print what is published, as JSON. Keep it: `verify --earlier` compares a later one with it."""
    sys.stdout.write(_read(PublishedLottery, where, url, data_dir).model_dump_json(indent=2) + "\n")


@lottery.command("verify")
def verify(
    where: Annotated[str, typer.Argument(metavar="EVENT_ID|FILE|URL", help="An event, a saved document, its address.")],
    entry: Annotated[int | None, typer.Option(min=1, help="My entry number: what place did it get?")] = None,
    place: Annotated[int | None, typer.Option(min=1, help="The place I was told.")] = None,
    lane: Annotated[int, typer.Option(min=0, max=15, help="The lane of --entry.")] = 0,
    public_value: Annotated[str | None, typer.Option(help="The value as I know it from elsewhere.")] = None,
    earlier: Annotated[Path | None, typer.Option(help="What `show` printed before.")] = None,
    proof: Annotated[Path | None, typer.Option(help="The proof of entry, from …/queue/lottery/proof.")] = None,
    url: Url = None,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Compute a lottery again from what it published. Exit code 1 if something does not hold."""
    told = _read(PublishedLottery, where, url, data_dir)
    if entry is None and place is not None:
        raise Refused("--place needs --entry: whose place is it?")
    if entry is not None and told.seed is None:
        raise Refused("The lottery is not drawn yet: no entry has a place.")
    asked = Asked(
        lane,
        entry,
        place,
        public_value,
        _read(PublishedLottery, str(earlier), url, data_dir) if earlier else None,
        _read(EntryProof, str(proof), url, data_dir) if proof else None,
    )
    if not print_checks(Console(highlight=False), told, check(told, asked)):
        raise typer.Exit(1)


def print_checks(out: Console, told: PublishedLottery, checks: list[Check]) -> bool:
    """A line per check; whether none of them failed."""
    table = Table("checked", "holds", "detail", title=f"{told.event_id}, epoch {told.epoch}: {told.stage}")
    for one in checks:
        table.add_row(one.what, SAID[one.holds], one.detail)
    out.print(table)
    return all(one.holds is not False for one in checks)


def _read(kind: type[Document], where: str, url: str | None, data_dir: Path) -> Document:
    """From a file, an address, or the running suite."""
    try:
        return kind.model_validate_json(_bytes(where, url, data_dir))
    except ValidationError as refused:
        raise Refused(f"{where} does not hold what a lottery publishes: {refused.error_count()} fields.") from refused


def _bytes(where: str, url: str | None, data_dir: Path) -> bytes:
    if Path(where).is_file():
        with Path(where).open("rb") as file:
            return file.read(DOCUMENT_MAX_BYTES)
    if "://" not in where:
        where = f"{url or suite_url(data_dir)}/events/{where}/queue/lottery"

    async def work(client: httpx.AsyncClient) -> bytes:
        try:
            answer = await client.get(where, timeout=20)
        except httpx.HTTPError as unreachable:
            raise Refused(f"Nothing answers at {where}.") from unreachable
        if answer.is_error:
            raise Refused(f"{where} answered {answer.status_code}.")
        return answer.content

    return _with_client(work)


Result = TypeVar("Result")


def _with_client(work: Callable[[httpx.AsyncClient], Awaitable[Result]]) -> Result:
    async def run() -> Result:
        async with httpx.AsyncClient(trust_env=False) as client:
            return await work(client)

    return asyncio.run(run())
