"""Client of the suite's admin API, for the command line, `onsale up` and the simulator.

A refusal of the API is raised as an `OperatorError` with the problem's own text.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx
from pydantic import ValidationError

from onsale.client import Operator, Problem
from onsale.client.connection import NO_ANSWER, Answer, Request
from onsale.errors import OperatorError

if TYPE_CHECKING:
    from shared.contracts.event_file import EventFile
    from shared.report.invariants import CheckedInvariant

NO_PICTURES: Mapping[str, bytes] = {}


def _unheard(warning: str) -> None:
    """For callers whom no warning would help."""


class NotFoundThere(OperatorError):
    """The API knows nothing of this name."""


class AdminClient(Operator):
    """One operator of one suite. Asks once: who sits at a command line decides about the next time."""

    def __init__(self, client: httpx.AsyncClient, url: str, key: str) -> None:
        super().__init__(url, key, http=client, attempts_max=1)

    async def answer(self, request: Request) -> Answer:
        """The successful answer. Raises `OperatorError` with the problem's own text."""
        try:
            return await super().answer(request)
        except Problem as problem:
            if problem.status == NO_ANSWER:
                raise OperatorError(f"No suite answers at {self._url}: is `onsale up` running?") from problem
            said = problem.members.get("detail") or f"{request.method} {request.path} answered {problem.status}"
            raise (NotFoundThere if problem.status == 404 else OperatorError)(str(said)) from problem

    async def call(self, operation: str, /, *args: Any, **more: Any) -> Any:
        """Raises `OperatorError`, also for an answer in another form."""
        try:
            return await super().call(operation, *args, **more)
        except ValidationError as unexpected:
            hint = "use the `onsale` of the suite's version"
            raise OperatorError(f"{operation} was answered in another form: {hint}.") from unexpected

    async def apply(
        self, event: "EventFile", *, pictures: Mapping[str, bytes] = NO_PICTURES, dry_run: bool = False,
        reason: str | None = None, warn: Callable[[str], None] = _unheard,
    ) -> dict[str, bool]:  # fmt: skip
        """Applies the event file to inventory, orders and queue, and uploads its pictures to inventory; answers for
        each service whether it changed anything.

        All three check the file before any takes it: a file that one refuses changes nothing. Applying it again
        changes nothing. `warn` is told what they take and may not be meant. Raises `OperatorError`.
        """
        apply: dict[str, Callable[..., Awaitable[Any]]] = {  # the queue last: its room opens the sale
            "inventory": self.apply_inventory_event, "orders": self.apply_prices_event,
            "queue": self.apply_queue_event,
        }  # fmt: skip

        async def put(service: str, *, dry_run: bool) -> bool:
            applied = await apply[service](event.event_id, event, dry_run=dry_run or None, reason=reason)
            for warning in getattr(applied, "warnings", ()) if dry_run else ():
                warn(warning)
            return bool(getattr(applied, "changed", False))  # a room has no such field

        changes = {service: await put(service, dry_run=True) for service in apply}
        stored = await self.pictures(event.event_id, pictures)
        new = {name: content for name, content in pictures.items() if stored.get(name) != content}
        changes["inventory"] |= bool(new)
        if dry_run:
            return changes
        for name, content in new.items():
            await self.put_picture(event.event_id, name, content, reason=reason)
        for applied, service in enumerate(services := tuple(apply)):
            try:
                await put(service, dry_run=False)
            except OperatorError as refused:
                raise OperatorError(
                    f"{refused} The file is applied to {', '.join(services[:applied]) or 'none'} and not to "
                    f"{', '.join(services[applied:])}: apply it again, which changes only what is missing."
                ) from refused
        return changes

    async def event_file(self, event_id: str) -> "EventFile":
        """The event file by which the event would be as it is: applying it changes nothing. Raises `OperatorError`."""
        from shared.contracts.event_file import EventFile

        stock = await self.read_inventory_event(event_id)
        price = await self.read_prices_event(event_id)
        room = await self.read_queue_event(event_id)
        try:
            return EventFile(**dict(stock), **dict(price), room=room)
        except ValidationError as outdated:
            error = outdated.errors()[0]
            field = ".".join(map(str, error["loc"]))
            raise OperatorError(f"{event_id} is no event file any more: {field}: {error['msg']}") from outdated

    async def pictures(self, event_id: str, names: Iterable[str]) -> dict[str, bytes]:
        """Those of these pictures that the event has. Raises `OperatorError`."""
        found = {}
        for name in names:
            with suppress(NotFoundThere):
                found[name] = await self.read_picture(event_id, name)
        return found

    async def audit(self, event_id: str) -> "list[CheckedInvariant]":
        """The invariants of queue, orders and inventory, and the one between orders and inventory."""
        from shared.report.invariants import check_invariants

        return await check_invariants(self, event_id)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}
