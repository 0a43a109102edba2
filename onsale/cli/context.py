"""What commands share: the options that say which suite is meant, calls of its admin API, the screen.

Every command of an `AdminCommands` group takes `--url` and `--data-dir`; `with_admin` reads them where it is called, so
that no command passes them on. Errors are raised as `OperatorError` and printed by `onsale.cli.app.main` alone.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

import typer
from rich.console import Console
from rich.table import Column, Table

from onsale.data_dir import admin_key, suite_url
from onsale.errors import OperatorError
from onsale.imports import import_module

if TYPE_CHECKING:  # a command that asks no suite imports none of these
    import httpx

    from onsale.admin_client import AdminClient
    from shared.contracts.fields import Page

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
DataDir = Annotated[Path, typer.Option("--data-dir", help="The data directory of `onsale up`: keys, addresses, logs.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", help="Address of the suite, such as https://tickets.example; else as its data directory says."
    ),
]
EventId = Annotated[str, typer.Argument(metavar="EVENT_ID", help="The event's id, as in its event file.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Kept in the audit log.")]
RequiredReason = Annotated[str, typer.Option("--reason", help="Kept in the audit log.")]
Before = Annotated[str | None, typer.Option(help="The next page: as the last line of this one says.")]
DATA_DIR = Path(".onsale")

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


class Target(NamedTuple):
    """The suite that the running command is about."""

    given_url: str | None
    data_dir: Path

    @property
    def url(self) -> str:
        """Where it answers, without a slash at the end."""
        return (self.given_url or suite_url(self.data_dir)).rstrip("/")

    @property
    def admin_key(self) -> str:
        return admin_key(self.data_dir)


_target: ContextVar[Target] = ContextVar("target")


def target() -> Target:
    """The suite named by the command's `--url` and `--data-dir`."""
    return _target.get()


def for_suite(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same command with the options `--url` and `--data-dir`, which `target()` answers while it runs."""

    @wraps(function)
    def command(*, url: str | None, data_dir: Path, **values: Any) -> Any:
        _target.set(Target(url, data_dir))
        return function(**values)

    signature, keyword = inspect.signature(function), inspect.Parameter.KEYWORD_ONLY
    options = (
        inspect.Parameter("url", keyword, default=None, annotation=Url),
        inspect.Parameter("data_dir", keyword, default=DATA_DIR, annotation=DataDir),
    )
    command.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *options])  # type: ignore[attr-defined]
    return command


class AdminCommands(typer.Typer):
    """A group of commands that call the admin API of a running suite."""

    def __init__(self, help: str) -> None:  # noqa: A002 - Typer's own name
        super().__init__(no_args_is_help=True, help=help)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        register = super().command(name, **options)

        def add(function: Function) -> Function:
            register(for_suite(function))
            return function

        return add


def add_action(
    app: AdminCommands, name: str, operation: str, takes: Mapping[str, Any], says: str | Callable[..., str], *,
    about: str, reason: str | EllipsisType | None = None, **fixed: str,
) -> None:  # fmt: skip
    """Adds a command that only sends what it takes, and a reason (`...`: required), and prints a line.

    `takes` has the options of values by their names in the operation's path or, if they are not there, in its body.
    `fixed` are further ones. `says` is told all of them and the `answer`.
    """

    def act(**given: Any) -> None:
        from shared.contracts.admin.operator_calls import OPERATIONS

        row, values = OPERATIONS[operation], {**given, **fixed}
        path = {each: value for each, value in values.items() if f"{{{each}}}" in row.path}
        rest = {each: value for each, value in values.items() if each not in path}
        sent: dict[str, Any] = {"body" if row.body else "query": rest}
        answer = with_admin(lambda admin: admin.call(operation, **sent, **path))
        out.print((says.format if isinstance(says, str) else says)(answer=answer, **values))

    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [inspect.Parameter(each, keyword, annotation=kind) for each, kind in takes.items()]
    if reason is ...:
        options.append(inspect.Parameter("reason", keyword, annotation=RequiredReason))
    else:
        options.append(inspect.Parameter("reason", keyword, annotation=Reason, default=reason))
    act.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    app.command(name, help=about)(act)


def with_admin(work: "Callable[[AdminClient], Awaitable[T]]") -> T:
    """What `work` answers, given a client of the suite's admin API. Raises `OperatorError`."""
    import_module("onsale.admin_client")
    import httpx

    from onsale.admin_client import AdminClient

    async def run() -> T:
        url = target().url
        verify = not url.startswith("http:")  # plain HTTP needs no certificates, and loading them takes a while
        async with httpx.AsyncClient(trust_env=False, verify=verify) as client:
            return await work(AdminClient(client, url, target().admin_key))

    return run_async(run())


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on uvloop."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def print_page(
    page: "Page", columns: Sequence[str | Column], rows: Iterable[Sequence[str]], *, title: str | None = None
) -> None:
    """The rows of a page, and the option that shows the next page, if there is one."""
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    out.print(table)
    for name, (cursor,) in parse_qs(urlsplit(page.next or "").query).items():
        if name in ("before", "after"):
            out.print(f"more: --{name} {cursor}", style="dim")


def to_second(at: datetime | str | None) -> str:
    """A point in time as tables show it; empty for none."""
    return str(at or "")[:19].replace("T", " ")


def rfc3339(at: datetime | None) -> str:
    """A point in time as the API writes it; empty for none."""
    return at.isoformat().replace("+00:00", "Z") if at else ""


def download(path: str, file: Path, query: Mapping[str, str] | None = None) -> None:
    """Writes what the admin API streams at `path` to a new file: all of it or none. Raises `OperatorError`, also when
    the file is there already.
    """
    import_module("httpx")
    import httpx

    headers = {"authorization": f"Bearer {target().admin_key}"}
    try:
        with httpx.stream(
            "GET", target().url + path, params=query, headers=headers, timeout=60, trust_env=False
        ) as response:
            if response.is_error:
                raise OperatorError(f"The export was refused: {response.status_code}.")
            with file.open("xb") as opened:
                _save(response, file, opened)
    except httpx.HTTPError as broken:
        raise OperatorError(f"The export broke off: {type(broken).__name__}.") from broken
    except OSError as unwritable:
        raise OperatorError(f"{file}: {unwritable.strerror}") from unwritable


def _save(response: "httpx.Response", file: Path, opened: BinaryIO) -> None:
    try:
        for part in response.iter_bytes():
            opened.write(part)
    except BaseException:
        file.unlink()
        raise


def changed_values(values: Mapping[str, Any], options: str) -> dict[str, Any]:
    """The values that were given. Raises `OperatorError` when there are none; `options` names those that could be."""
    from onsale.admin_client import given

    if not (changed := given(values)):
        raise OperatorError(f"Nothing to change: give {options}.")
    return changed
