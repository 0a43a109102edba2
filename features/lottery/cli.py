"""`onsale lottery`: draw a lottery as an operator; show and verify a published one as anybody."""

import sys
from pathlib import Path
from typing import Annotated, Any, TypeVar

import httpx
import typer
from pydantic import BaseModel, ValidationError
from rich.table import Table

from features.lottery.check import Evidence, check
from features.lottery.contracts import EntryProof, PublishedLottery
from onsale.cli.context import AdminCommands, EventId, add_action, out, target
from onsale.errors import OperatorError

app = AdminCommands(help="Draw the lottery of a pre-queue, or verify a published one.")
Document = TypeVar("Document", bound=BaseModel)
Source = Annotated[
    str, typer.Argument(metavar="EVENT_ID|FILE|URL", help="An event of the suite, a saved document, or its address.")
]
PublicValue = Annotated[str, typer.Option("--public-value", help="The value that was announced in advance.")]
DOCUMENT_MAX_BYTES = 1024 * 1024
TIMEOUT_S = 20
HOLDS = {True: "[green]yes[/]", False: "[red]NO[/]", None: "[dim]open[/]"}


def _drawn(*, answer: PublishedLottery, event_id: str, **_: Any) -> str:
    entrants_n = sum(entrants.n for entrants in answer.entrants.values())
    return f"{event_id}: drawn, {entrants_n:,} places. Verified it: onsale lottery verify {event_id}"


add_action(
    app, "draw", "draw_lottery", {"event_id": EventId, "public_value": PublicValue}, _drawn,
    about="""Draw the order of the line, once entry has closed and the public value is known. Reveals the seed.

    A lottery is drawn once: the same value again changes nothing, another is refused.

    Example: onsale lottery draw arena-2026 --public-value 24331.09
    """,
    reason="onsale lottery draw",
)  # fmt: skip


@app.command("show")
def show(source: Source) -> None:
    """Print a published lottery as JSON. Keep it: `verify --earlier` compares a later one with it.

    Example: onsale lottery show arena-2026 > before.json
    """
    sys.stdout.write(_read(PublishedLottery, source).model_dump_json(indent=2) + "\n")


@app.command("verify")
def verify(
    source: Source,
    entry: Annotated[int | None, typer.Option(min=1, help="Your entry number: compute its place.")] = None,
    place: Annotated[int | None, typer.Option(min=1, help="The place you were given; needs --entry.")] = None,
    lane: Annotated[int, typer.Option(min=0, max=15, help="The lane of --entry.")] = 0,
    public_value: Annotated[str | None, typer.Option(help="The public value as you know it from elsewhere.")] = None,
    earlier: Annotated[Path | None, typer.Option(help="What `onsale lottery show` printed before.")] = None,
    proof: Annotated[Path | None, typer.Option(help="Your proof of entry, from …/queue/lottery/proof.")] = None,
) -> None:
    """Compute a lottery again from what was published. Exit code 1 if a check fails.

    Example: onsale lottery verify arena-2026 --entry 34 --public-value 24331.09
    """
    lottery = _read(PublishedLottery, source)
    if entry is None and place is not None:
        raise OperatorError("--place needs --entry: whose place is it?")
    if entry is not None and lottery.seed is None:
        raise OperatorError("The lottery is not drawn yet: no entry has a place.")
    evidence = Evidence(
        lane=lane,
        entry=entry,
        place=place,
        public_value=public_value,
        earlier=_read(PublishedLottery, str(earlier)) if earlier else None,
        proof=_read(EntryProof, str(proof)) if proof else None,
    )
    checks = check(lottery, evidence)
    table = Table("checked", "holds", "detail", title=f"{lottery.event_id}, epoch {lottery.epoch}: {lottery.stage}")
    for each in checks:
        table.add_row(each.statement, HOLDS[each.holds], each.detail)
    out.print(table)
    if any(each.holds is False for each in checks):
        raise typer.Exit(1)


def _read(kind: type[Document], source: str) -> Document:
    """The document in a file, at an address, or of an event of the running suite."""
    try:
        return kind.model_validate_json(_bytes(source))
    except ValidationError as refused:
        raise OperatorError(
            f"{source} does not hold what a lottery publishes: {refused.error_count()} fields."
        ) from refused


def _bytes(source: str) -> bytes:
    if Path(source).is_file():
        with Path(source).open("rb") as file:
            return file.read(DOCUMENT_MAX_BYTES)
    url = source if "://" in source else f"{target().url}/events/{source}/queue/lottery"
    try:
        response = httpx.get(url, timeout=TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as unreachable:
        raise OperatorError(f"Nothing answers at {url}.") from unreachable
    if response.is_error:
        raise OperatorError(f"{url} answered {response.status_code}.")
    return response.content
