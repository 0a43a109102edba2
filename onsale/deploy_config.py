"""`onsale deploy-config`: both load balancers' files from the table of routes, as they are in `deploy/` or for your own
hosts.
"""

import re
from pathlib import Path
from typing import Annotated

import typer

from onsale.admin import Refused
from onsale.balancers import ASKED_INSIDE, Plan, Process, on_one_machine
from onsale.haproxy import haproxy_cfg
from onsale.nginx import nginx_conf
from shared.routes import SERVICES, Service

_PROCESS = re.compile(r"(?P<service>[a-z]+)=(?P<host>[^\s;{}]+):(?P<public>\d{1,5})(/(?P<internal>\d{1,5}))?")


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
    if certificate and not certificate.endswith(".crt"):
        raise Refused("The certificate's name must end in .crt, and its key stand beside it as .key.")
    plan = Plan(
        processes={**on_one_machine(), **_processes(process or [])},
        listen=listen,
        listen_tls=listen_tls,
        certificate=certificate,
        trusted=tuple(trust or ()),
        operators=tuple(operators or Plan.operators),
        inside={service: f"{inside_host}:830{SERVICES.index(service) + 1}" for service in ASKED_INSIDE},
    )
    (folder / "nginx.conf").write_text(nginx_conf(plan))
    (folder / "haproxy.cfg").write_text(haproxy_cfg(plan))


def _processes(told: list[str]) -> dict[Service, list[Process]]:
    """Raises `Refused` with a clear line."""
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
