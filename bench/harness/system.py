"""Our side: the real services, one process each, started and given an event as an operator would."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence

import httpx

from bench.harness.testbed import Trial
from onsale.admin_client import AdminClient
from onsale.local.ports import HOST, free_port
from shared.contracts.admin import inventory, queue
from shared.contracts.event_file import EventFile
from shared.postgres import migrations
from shared.web.routes import SERVICES_WITH_TABLES, Service

LINE_S, POLL_S = 30.0, 0.1
ADMIN_KEY = secrets.token_urlsafe(32)


async def serve(
    trial: Trial, services: Sequence[Service], settings: Mapping[str, str] | None = None,
    fixed: Mapping[Service, int] | None = None,
) -> dict[Service, int]:  # fmt: skip
    """Migrate, start these services in this order, and wait until they are ready; their public ports, some `fixed`."""
    ports: dict[Service, int] = {name: (fixed or {}).get(name) or free_port() for name in services}
    environment = {
        "ONSALE_POSTGRES_URL": trial.postgres_url,
        "ONSALE_REDIS_URL": trial.redis_url,
        "ONSALE_ADMIN_KEYS": f"bench:admin:{ADMIN_KEY}",
        **(settings or {}),
    }
    for name, port in ports.items():
        internal_port = free_port()
        environment |= {
            f"{name.upper()}_PORT": str(port),
            f"{name.upper()}_INTERNAL_PORT": str(internal_port),
            f"ONSALE_{name.upper()}_URL": f"http://{HOST}:{internal_port}",
        }
    for name in services:
        if name in SERVICES_WITH_TABLES:
            await migrations.upgrade(trial.postgres_url, name)
    for name, port in ports.items():
        await trial.serve(name, ["onsale", "serve", name], port, environment)
    return ports


async def serve_another(trial: Trial, service: Service, settings: Mapping[str, str] | None = None) -> int:
    """Starts one more process of a service of this trial, on ports of its own; its public port."""
    name, port, internal_port = f"{service}-2", free_port(), free_port()
    own = {
        f"{service.upper()}_PORT": str(port),
        f"{service.upper()}_INTERNAL_PORT": str(internal_port),
        f"ONSALE_{service.upper()}_URL": f"http://{HOST}:{internal_port}",
    }
    await trial.serve(
        name, ["onsale", "serve", service], port, {**trial.environments[service], **own, **(settings or {})}
    )
    return port


async def apply_to_inventory(event: EventFile, port: int) -> None:
    """The venue and its stock."""
    async with httpx.AsyncClient(trust_env=False) as client:
        admin = AdminClient(client, f"http://{HOST}:{port}", ADMIN_KEY)
        await admin.call(inventory.APPLY_EVENT, event, event_id=event.event_id)


async def apply_room(event: EventFile, port: int) -> None:
    """The waiting room, configured; a new one is a draft."""
    async with httpx.AsyncClient(trust_env=False) as client:
        admin = AdminClient(client, f"http://{HOST}:{port}", ADMIN_KEY)
        await admin.call(queue.APPLY_EVENT, event, event_id=event.event_id)


async def open_room(event: EventFile, port: int) -> None:
    """The waiting room, configured and open."""
    await apply_room(event, port)
    async with httpx.AsyncClient(trust_env=False) as client:
        await AdminClient(client, f"http://{HOST}:{port}", ADMIN_KEY).act(event.event_id, "open", reason="measuring")


async def until_line_is_shown(gateway_port: int, event: EventFile, *, tail_seq: int) -> None:
    """Waits until the gateway shows a line of this length. Raises `TimeoutError`."""
    async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(LINE_S):
        while True:
            response = await client.get(f"http://{HOST}:{gateway_port}/events/{event.event_id}/queue")
            if (
                response.status_code == 200
                and response.json()["tail_seq"] >= tail_seq
                and response.json()["state"] == "open"
            ):
                return
            await asyncio.sleep(POLL_S)
