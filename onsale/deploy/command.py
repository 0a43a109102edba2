"""`onsale deploy-config`: both load balancers' files from the table of routes, as they are in `deploy/` or for your own
hosts.
"""

import re
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated

import typer

from onsale.commands.client import Refused
from onsale.deploy.balancers import ASKED_INSIDE, Plan, Process, on_one_machine
from onsale.deploy.haproxy import haproxy_cfg
from onsale.deploy.nginx import nginx_conf
from shared.web.routes import SERVICES, Service

_ADDRESS = re.compile(r"([\w.-]+:)?\d{1,5}")
_PROCESS = re.compile(r"(?P<service>[a-z]+)=(?P<host>[\w.-]+):(?P<public>\d{1,5})(/(?P<internal>\d{1,5}))?")


def deploy_config(
    folder: Annotated[Path, typer.Option(help="Where nginx.conf and haproxy.cfg are written.")] = Path("deploy"),
    process: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVICE=HOST:PUBLIC[/INTERNAL]",
            help="A process, as queue=10.0.0.7:8102/8202; may be repeated. Of services that are not named, two here.",
        ),
    ] = None,
    listen: Annotated[str, typer.Option(help="Port or address for plain HTTP.")] = "8080",
    listen_tls: Annotated[str, typer.Option(help="Port or address for HTTPS, with a certificate.")] = "8443",
    certificate: Annotated[
        str, typer.Option(help="PEM file named .crt, its key beside it named .key: HTTPS, HTTP/2, plain HTTP moves.")
    ] = "",
    trust: Annotated[
        list[str] | None, typer.Option(help="Network of proxies in front whose X-Forwarded-For counts; repeatable.")
    ] = None,
    operators: Annotated[
        list[str] | None, typer.Option(help="Network that may use /admin, instead of 127.0.0.0/8 and 10.0.0.0/8.")
    ] = None,
    inside_host: Annotated[str, typer.Option(help="Address on which neighbours ask each other.")] = "127.0.0.1",
) -> None:
    """Write the load balancers' configuration from the table of routes."""
    if certificate and not re.fullmatch(r"[\w./-]+\.crt", certificate):
        raise Refused("The certificate is a path that ends in .crt; its key stands beside it as .key.")
    for address in (listen, listen_tls, f"{inside_host}:1"):
        if not _ADDRESS.fullmatch(address):
            raise Refused(f"Cannot listen at {address}: a port, or an address and a port.")
    plan = Plan(
        processes={**on_one_machine(), **_processes(process or [])},
        listen=listen,
        listen_tls=listen_tls,
        certificate=certificate,
        trusted=_networks(trust or ()),
        operators=_networks(operators or Plan.operators),
        inside={service: f"{inside_host}:830{SERVICES.index(service) + 1}" for service in ASKED_INSIDE},
    )
    (folder / "nginx.conf").write_text(nginx_conf(plan))
    (folder / "haproxy.cfg").write_text(haproxy_cfg(plan))


def _networks(told: Sequence[str]) -> tuple[str, ...]:
    """Raises `ProviderRejected` with a clear line."""
    try:
        return tuple(str(ip_network(text)) for text in told)
    except ValueError as wrong:
        raise Refused(f"Not a network: {wrong}.") from wrong


def _processes(told: list[str]) -> dict[Service, list[Process]]:
    """Raises `ProviderRejected` with a clear line."""
    found: dict[Service, list[Process]] = {}
    for text in told:
        part = _PROCESS.fullmatch(text)
        service = next((name for name in SERVICES if part and name == part["service"]), None)
        if part is None or service is None or (service in ASKED_INSIDE) != bool(part["internal"]):
            raise Refused(f"Cannot read {text}: as gateway=10.0.0.7:8101, and as queue=10.0.0.7:8102/8202 for "
                          f"{', '.join(ASKED_INSIDE)}, which neighbours ask.")  # fmt: skip
        internal = f"{part['host']}:{part['internal']}" if part["internal"] else ""
        found.setdefault(service, []).append(Process(f"{part['host']}:{part['public']}", internal))
    return found
