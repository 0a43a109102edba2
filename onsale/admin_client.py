"""Client of the suite's admin API, for the command line, `onsale up` and the simulator.

A refusal of the API is raised as an `OperatorError` with the problem's own text. The models of a service are imported
by the method that needs them: they take longer to build than most commands take to run.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from onsale.errors import OperatorError
from shared.contracts.admin.endpoint import Endpoint
from shared.contracts.admin.page import Page
from shared.web.routes import at_suite

if TYPE_CHECKING:
    from shared.contracts.admin import queue
    from shared.contracts.event_file import EventFile
    from shared.report.invariants import CheckedInvariant

TIMEOUT_S = 60
NO_PICTURES: Mapping[str, bytes] = {}

Answer = TypeVar("Answer")
PageAnswer = TypeVar("PageAnswer", bound=Page)
RequestBody = BaseModel | Mapping[str, Any] | None
_BODY: TypeAdapter[Any] = TypeAdapter(Any)


class NotFoundThere(OperatorError):
    """The API knows nothing of this name."""


class AdminClient:
    """One operator of one suite."""

    def __init__(self, client: httpx.AsyncClient, url: str, key: str) -> None:
        self._client, self._url, self._key = client, url.rstrip("/"), key

    async def apply(
        self, event: "EventFile", *, pictures: Mapping[str, bytes] = NO_PICTURES, dry_run: bool = False,
        reason: str | None = None,
    ) -> dict[str, bool]:  # fmt: skip
        """Applies the event file to inventory, orders and queue, and uploads its pictures to inventory; answers for
        each service whether it changed anything.

        All three check the file before any takes it: a file that one refuses changes nothing. Applying it again
        changes nothing. Raises `OperatorError`.
        """
        from shared.contracts.admin import inventory, prices, queue

        endpoints: dict[str, Endpoint[Any]] = {  # the queue last: its room opens the sale
            "inventory": inventory.APPLY_EVENT, "orders": prices.APPLY_EVENT, "queue": queue.APPLY_EVENT,
        }  # fmt: skip

        async def put(service: str, *, dry_run: bool) -> bool:
            query = {"dry_run": dry_run or None, "reason": reason}
            applied = await self.call(endpoints[service], event, query=query, event_id=event.event_id)
            return not isinstance(applied, queue.RoomView) and applied.changed

        changes = {service: await put(service, dry_run=True) for service in endpoints}
        stored = await self.pictures(event.event_id, pictures)
        new = {name: content for name, content in pictures.items() if stored.get(name) != content}
        changes["inventory"] |= bool(new)
        if dry_run:
            return changes
        for name, content in new.items():
            await self._send(
                inventory.PUT_PICTURE, picture_path(event.event_id, name), content, query=given({"reason": reason})
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
        from shared.contracts.admin import inventory, prices, queue
        from shared.contracts.event_file import EventFile

        stock = await self.call(inventory.READ_EVENT, event_id=event_id)
        price = await self.call(prices.READ_EVENT, event_id=event_id)
        room = await self.call(queue.READ_EVENT, event_id=event_id)
        return EventFile(**dict(stock), **dict(price), room=room)

    async def pictures(self, event_id: str, names: Iterable[str]) -> dict[str, bytes]:
        """Those of these pictures that the event has. Raises `OperatorError`."""
        found = {}
        for name in names:
            with suppress(NotFoundThere):
                found[name] = (await self._request("GET", picture_path(event_id, name))).content
        return found

    async def room(self, event_id: str) -> "queue.RoomView":
        """The waiting room's configuration and state."""
        from shared.contracts.admin import queue

        return await self.call(queue.READ_ROOM, event_id=event_id)

    async def change_room(self, event_id: str, **values: Any) -> "queue.RoomView":
        """Changes the rate or other values of the waiting room; the next tick applies them."""
        from shared.contracts.admin import queue

        return await self.call(queue.CHANGE_ROOM, values, event_id=event_id)

    async def act(self, event_id: str, action: str, *, reason: str | None) -> "queue.RoomView":
        """Does `open`, `pause`, `resume`, `drain` or `close` to the waiting room."""
        from shared.contracts.admin import queue

        return await self.call(queue.SET_ROOM_STATE, {"reason": reason}, event_id=event_id, action=action)

    async def audit(self, event_id: str) -> "list[CheckedInvariant]":
        """The invariants of queue, orders and inventory, and the one between orders and inventory."""
        from shared.report.invariants import check_invariants

        return await check_invariants(self.ask, event_id)

    async def ask(
        self, _service: str, endpoint: Endpoint[Answer], query: Mapping[str, Any] | None = None, /, **path_values: str
    ) -> Answer:
        """`call`, as the report asks: one address has all services. Raises `OperatorError`."""
        return await self.call(endpoint, None, query=query, key=None, **path_values)

    async def call(
        self, endpoint: Endpoint[Answer], body: RequestBody = None, *,
        query: Mapping[str, Any] | None = None, key: str | None = None, **path_values: str | int,
    ) -> Answer:  # fmt: skip
        """What the endpoint answers. Query values that are None are left out; calls with the same idempotency `key`
        are one call; fields that a newer suite adds are accepted.

        Raises `OperatorError` with the problem's own text.
        """
        if endpoint.needs_key and key is None:
            raise ValueError(f"{endpoint.path} needs an idempotency key")
        path = endpoint.path.format(**{name: quote(str(value), safe="") for name, value in path_values.items()})
        return await self._send(endpoint, path, body, query=given(query or {}) or None, key=key)

    async def pages(
        self, endpoint: Endpoint[PageAnswer], *, query: Mapping[str, Any] | None = None, **path_values: str | int
    ) -> AsyncIterator[PageAnswer]:
        """Every page of a list. Raises `OperatorError`."""
        page = await self.call(endpoint, None, query=query, key=None, **path_values)
        yield page
        while page.next is not None:
            page = await self._send(endpoint, page.next)
            yield page

    async def _send(
        self, endpoint: Endpoint[Answer], path: str, body: RequestBody | bytes = None, *,
        query: Mapping[str, Any] | None = None, key: str | None = None,
    ) -> Answer:  # fmt: skip
        return _answer(endpoint, await self._request(endpoint.method, path, body, query=query, key=key))

    async def _request(
        self, method: str, path: str, body: RequestBody | bytes = None, *, query: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> httpx.Response:  # fmt: skip
        headers = {"authorization": f"Bearer {self._key}"} | ({"idempotency-key": key} if key else {})
        sent: dict[str, Any] = (
            {"content": body} if isinstance(body, bytes) else {"json": _BODY.dump_python(body, mode="json")}
        )
        try:
            response = await self._client.request(
                method, at_suite(self._url, path), params=query, headers=headers, timeout=TIMEOUT_S, **sent
            )
        except httpx.HTTPError as unreachable:
            raise OperatorError(f"No suite answers at {self._url}: is `onsale up` running?") from unreachable
        if response.is_error:
            refused = NotFoundThere if response.status_code == 404 else OperatorError
            raise refused(_detail(response))
        return response


def picture_path(event_id: str, name: str) -> str:
    """Where an operator puts and reads a picture of an event."""
    return f"/admin/inventory/events/{quote(event_id, safe='')}/pictures/{quote(name, safe='')}"


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _answer(endpoint: Endpoint[Answer], response: httpx.Response) -> Answer:
    try:
        return TypeAdapter(endpoint.answer).validate_json(response.content or b"null", extra="allow")
    except ValidationError as unexpected:
        where = f"{endpoint.method} {response.request.url.path}"
        hint = "use the `onsale` of the suite's version"
        raise OperatorError(f"{where} answered in another form: {hint}.") from unexpected


def _detail(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{response.request.method} {response.request.url.path} answered {response.status_code}"
