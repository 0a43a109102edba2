"""Our side: the real services, one process each, started and given an event as an operator would."""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from bench.harness.measurement import Trial
from onsale.admin_client import AdminClient
from onsale.local.ports import HOST, free_port
from shared.contracts.event_file import EventFile
from shared.postgres import migrations
from shared.routes import SERVICES_WITH_TABLES, Service
from tests.support.wait import wait_until

ANSWER_S, POLL_S = 30.0, 0.1
ADMIN_KEY = secrets.token_urlsafe(32)


def _addresses(service: Service, port: int) -> dict[str, str]:
    """The settings of a process: its ports, and where the others call it."""
    internal_port = free_port()
    return {
        f"{service.upper()}_PORT": str(port), f"{service.upper()}_INTERNAL_PORT": str(internal_port),
        f"ONSALE_{service.upper()}_URL": f"http://{HOST}:{internal_port}",
    }  # fmt: skip


async def serve(
    trial: Trial, services: Sequence[Service], settings: Mapping[str, str] | None = None,
    fixed: Mapping[Service, int] | None = None, programs: Mapping[Service, str] | None = None,
) -> dict[Service, int]:  # fmt: skip
    """Migrate, start these services in this order, and wait until they are ready; their public ports, some `fixed`.
    `programs` are modules that run instead of a service's own command.
    """
    ports: dict[Service, int] = {name: (fixed or {}).get(name) or free_port() for name in services}
    environment = {
        "ONSALE_POSTGRES_URL": trial.postgres_url, "ONSALE_REDIS_URL": trial.redis_url,
        "ONSALE_ADMIN_KEYS": f"bench:admin:{ADMIN_KEY}", **(settings or {}),
    }  # fmt: skip
    for name, port in ports.items():
        environment |= _addresses(name, port)
        if name in SERVICES_WITH_TABLES:
            await migrations.upgrade(trial.postgres_url, name)
    for name, port in ports.items():
        module = (programs or {}).get(name)
        await trial.serve(name, [module] if module else ["onsale", "serve", name], port, environment)
    return ports


async def serve_another(
    trial: Trial, service: Service, settings: Mapping[str, str] | None = None, *, number: int = 2
) -> int:
    """Starts one more process of a service of this trial, on ports of its own; its public port."""
    port = free_port()
    environment = {**trial.environments[service], **_addresses(service, port), **(settings or {})}
    await trial.serve(f"{service}-{number}", ["onsale", "serve", service], port, environment)
    return port


@asynccontextmanager
async def operator(port: int) -> AsyncIterator[AdminClient]:
    """The admin API of the service on this port."""
    async with httpx.AsyncClient(trust_env=False) as client:
        yield AdminClient(client, f"http://{HOST}:{port}", ADMIN_KEY)


async def apply_to_inventory(event: EventFile, port: int) -> None:
    """The venue and its stock, in the words that an earlier checkout knows, too."""
    async with operator(port) as admin:
        await admin.apply_inventory_event(event.event_id, event.model_dump(mode="json", exclude_defaults=True))


async def apply_room(event: EventFile, port: int) -> None:
    """The waiting room, configured; a new one is a draft."""
    async with operator(port) as admin:
        await admin.apply_queue_event(event.event_id, event)


async def open_room(event: EventFile, port: int) -> None:
    """The waiting room, configured and open."""
    await apply_room(event, port)
    async with operator(port) as admin:
        await admin.set_room_state(event.event_id, "open", {"reason": "measuring"})


async def until_answer(port: int, path: str, is_wanted: Callable[[Any], bool] = bool) -> None:
    """Waits until this service answers 200 with a wanted document."""
    async with httpx.AsyncClient(trust_env=False) as client:

        async def is_answered() -> bool:
            answer = await client.get(f"http://{HOST}:{port}{path}")
            return answer.status_code == 200 and is_wanted(answer.json())

        await wait_until(is_answered, timeout_s=ANSWER_S, interval_s=POLL_S)


async def until_line_is_shown(gateway_port: int, event: EventFile, *, tail_seq: int) -> None:
    """Waits until the gateway shows an open line of this length."""
    path = f"/events/{event.event_id}/queue"
    await until_answer(gateway_port, path, lambda line: line["tail_seq"] >= tail_seq and line["state"] == "open")
