"""The admin API, as the command line calls it."""

from typing import Any

import httpx

from shared.contracts.event_file import EventFile

TAKERS = ("inventory", "orders", "queue")


class Refused(Exception):
    """The suite refused, or could not be reached; the message is one sentence for a person."""


class Admin:
    """A thin client: one operator, one suite."""

    def __init__(self, client: httpx.AsyncClient, url: str, key: str) -> None:
        self._client, self._url, self._key = client, url.rstrip("/"), key

    async def apply(self, event: EventFile, *, dry_run: bool = False) -> dict[str, bool]:
        """Gives the event file to inventory, to orders and, as it opens the sale, last to the queue; says whose part it
        changed. All of them check it before any of them takes it, so a file that one refuses changes nothing anywhere.
        Applying it again changes nothing. Raises `ProviderRejected`.
        """
        body = event.model_dump(mode="json")

        async def put(service: str, query: str = "") -> bool:
            answer = await self.call("PUT", f"/admin/{service}/events/{event.event_id}{query}", body)
            return bool(answer.get("changed"))

        changes = {service: await put(service, "?dry_run=true") for service in TAKERS}
        if dry_run:
            return changes
        for taken, service in enumerate(TAKERS):
            try:
                await put(service)
            except Refused as refused:
                raise Refused(
                    f"{refused} The file is applied to {', '.join(TAKERS[:taken]) or 'none'} and not to "
                    f"{', '.join(TAKERS[taken:])}: apply it again, which changes only what is missing."
                ) from refused
        return changes

    async def room(self, event_id: str) -> dict[str, Any]:
        """The room's configuration and state."""
        return dict(await self.call("GET", f"/admin/queue/events/{event_id}/room"))

    async def change_room(self, event_id: str, **values: Any) -> dict[str, Any]:
        """Changes the rate or another value of the room; the next tick obeys."""
        return dict(await self.call("PATCH", f"/admin/queue/events/{event_id}/room", values))

    async def act(self, event_id: str, action: str, **values: Any) -> None:
        """`open`, `pause`, `resume`, `close`, …"""
        await self.call("POST", f"/admin/queue/events/{event_id}/room/{action}", values)

    async def audit(self, event_id: str) -> list[dict[str, Any]]:
        """What each service says of the invariants it keeps, and whether orders and inventory sold the same.

        Inventory is asked last: what orders had confirmed by then must be sold there.
        """
        said: dict[str, dict[str, Any]] = {}
        for service in ("queue", "orders", "inventory"):
            said[service] = await self.call("GET", f"/admin/{service}/events/{event_id}/audit")
        rows = [{"service": service, **row} for service, answer in said.items() for row in answer["invariants"]]
        return [*rows, both_sold(said["orders"]["confirmed"], said["inventory"]["confirmed"])]

    async def call(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
        """The same `key` again is the same call. Raises `ProviderRejected` with the problem's own words."""
        headers = {"authorization": f"Bearer {self._key}"} | ({"idempotency-key": key} if key else {})
        try:
            response = await self._client.request(method, self._url + path, json=body, headers=headers, timeout=60)
        except httpx.HTTPError as unreachable:
            raise Refused(f"No suite answers at {self._url}: is `onsale up` running?") from unreachable
        if response.is_error:
            raise Refused(_words(response))
        return response.json() if response.content else None


def both_sold(orders: int, reservations: int) -> dict[str, Any]:
    """The invariant no service can see alone: every confirmed order's tickets are sold to it."""
    detail = f"{orders} orders confirmed, {reservations} reservations sold"
    return {
        "service": "both",
        "invariant": "7 confirmed orders are sold",
        "holds": orders <= reservations,
        "detail": detail,
    }


def _words(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{response.request.method} {response.request.url.path} answered {response.status_code}"
