"""Client of the suite's admin API, for the command line, `onsale up` and the simulator.

A refusal of the API is raised as an `OperatorError` with the problem's own text. The models of a service are imported
by the method that needs them: they take longer to build than most commands take to run.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from pydantic import ValidationError

from onsale.client import Operator, Problem
from onsale.client.connection import Request, segment
from onsale.client.problem import NO_ANSWER, Answer
from onsale.errors import OperatorError
from shared.contracts.admin.endpoint import Endpoint

if TYPE_CHECKING:
    from shared.contracts.event_file import EventFile
    from shared.report.invariants import CheckedInvariant

NO_PICTURES: Mapping[str, bytes] = {}

Answered = TypeVar("Answered")


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

    async def call_at(self, endpoint: Endpoint[Answered], path: str, *args: Any, **more: Any) -> Answered:
        """Raises `OperatorError`, also for an answer in another form."""
        try:
            return await super().call_at(endpoint, path, *args, **more)
        except ValidationError as unexpected:
            hint = "use the `onsale` of the suite's version"
            raise OperatorError(f"{endpoint.method} {path} answered in another form: {hint}.") from unexpected

    async def apply(
        self, event: "EventFile", *, pictures: Mapping[str, bytes] = NO_PICTURES, dry_run: bool = False,
        reason: str | None = None, warn: Callable[[str], None] = _unheard,
    ) -> dict[str, bool]:  # fmt: skip
        """Applies the event file to inventory, orders and queue, and uploads its pictures to inventory; answers for
        each service whether it changed anything.

        All three check the file before any takes it: a file that one refuses changes nothing. Applying it again
        changes nothing. `warn` is told what they take and may not be meant. Raises `OperatorError`.
        """
        from shared.contracts.admin import inventory, prices, queue

        endpoints: dict[str, Endpoint[Any]] = {  # the queue last: its room opens the sale
            "inventory": inventory.APPLY_EVENT, "orders": prices.APPLY_EVENT, "queue": queue.APPLY_EVENT,
        }  # fmt: skip

        async def put(service: str, *, dry_run: bool) -> bool:
            query = {"dry_run": dry_run or None, "reason": reason}
            applied = await self.call(endpoints[service], event, query=query, event_id=event.event_id)
            if dry_run and isinstance(applied, prices.EventFileApplied):
                for warning in applied.warnings:
                    warn(warning)
            return not isinstance(applied, queue.RoomView) and applied.changed

        changes = {service: await put(service, dry_run=True) for service in endpoints}
        stored = await self.pictures(event.event_id, pictures)
        new = {name: content for name, content in pictures.items() if stored.get(name) != content}
        changes["inventory"] |= bool(new)
        if dry_run:
            return changes
        for name, content in new.items():
            await self.content(
                "put_picture", "PUT", picture_path(event.event_id, name), body=content, query={"reason": reason}
            )
        for applied, service in enumerate(services := tuple(endpoints)):
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
                found[name] = await self.content("read_picture", "GET", picture_path(event_id, name))
        return found

    async def audit(self, event_id: str) -> "list[CheckedInvariant]":
        """The invariants of queue, orders and inventory, and the one between orders and inventory."""
        from shared.report.invariants import check_invariants

        return await check_invariants(self.ask, event_id)

    async def ask(
        self, _service: str, endpoint: Endpoint[Answered], query: Mapping[str, Any] | None = None, /, **path_values: str
    ) -> Answered:
        """`call`, as the report asks: one address has all services. Raises `OperatorError`."""
        return await self.call(endpoint, None, query=query, key=None, **path_values)


def picture_path(event_id: str, name: str) -> str:
    """Where an operator puts and reads a picture of an event."""
    return f"/admin/inventory/events/{segment(event_id)}/pictures/{segment(name)}"


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}
