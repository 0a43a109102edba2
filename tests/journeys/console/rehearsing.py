"""Steps of a rehearsal that an operator starts at the console."""

import httpx

FANS = 20


def path_of(event_id: str) -> str:
    return f"/console/api/events/{event_id}/rehearsal"


async def start(operator: httpx.AsyncClient, event_id: str, fans: int = FANS) -> None:
    started = await operator.post(path_of(event_id), json={"fans": fans, "reason": "the night before"})
    assert started.status_code == 202, started.text


async def room_state(operator: httpx.AsyncClient, event_id: str) -> str:
    return str((await operator.get(f"/admin/events/{event_id}/room")).json()["state"])
