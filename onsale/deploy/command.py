"""`onsale deploy-config`: writes the files for balancers and monitoring, as in `deploy/` or for your own hosts."""

import re
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated

import typer

from onsale.deploy.balancer_files import haproxy_cfg, nginx_conf
from onsale.deploy.balancers import SERVICES_WITH_INTERNAL_API, Plan, Process, on_one_machine
from onsale.deploy.monitoring_files import Receivers, write_monitoring_files
from onsale.errors import OperatorError
from shared.routes import SERVICES, Service

_ADDRESS = re.compile(r"([\w.-]+:)?\d{1,5}")
_PROCESS = re.compile(r"(?P<service>[a-z]+)=(?P<host>[\w.-]+):(?P<public>\d{1,5})(/(?P<internal>\d{1,5}))?")


def deploy_config(
    folder: Annotated[Path, typer.Option(help="Where the files and prometheus/ are written.")] = Path("deploy"),
    process: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVICE=HOST:PUBLIC[/INTERNAL]",
            help="A process, such as queue=10.0.0.7:8102/8202; may repeat. Default: two of each service, here.",
        ),
    ] = None,
    listen: Annotated[str, typer.Option(help="Port or address for plain HTTP.")] = "8080",
    listen_tls: Annotated[str, typer.Option(help="Port or address for HTTPS, with a certificate.")] = "8443",
    certificate: Annotated[
        str,
        typer.Option(
            help="PEM file named .crt, with its key in the same folder named .key: HTTPS, HTTP/2, plain HTTP redirects."
        ),
    ] = "",
    cache_folder: Annotated[
        str, typer.Option(help="Where nginx keeps public answers, 8 MiB at most; its parent must exist.")
    ] = Plan.cache_folder,
    trust: Annotated[
        list[str] | None, typer.Option(help="Network of proxies in front whose X-Forwarded-For is trusted; may repeat.")
    ] = None,
    operators: Annotated[
        list[str] | None,
        typer.Option(help="Network that may use /admin; may repeat. Default: 127.0.0.0/8 and 10.0.0.0/8."),
    ] = None,
    inside_host: Annotated[str, typer.Option(help="Address on which services call each other.")] = "127.0.0.1",
    pager: Annotated[str, typer.Option(help="Webhook that gets critical alarms.")] = "",
    chat: Annotated[str, typer.Option(help="Webhook that gets warnings.")] = "",
    mail_to: Annotated[str, typer.Option(help="Address of the daily mail with the rest.")] = "",
    smtp: Annotated[str, typer.Option(help="Mail server for it, as HOST:PORT.")] = "localhost:25",
) -> None:
    """Write the configuration of nginx, HAProxy, Prometheus and Alertmanager.

    Example: onsale deploy-config --folder /etc/onsale --process gateway=10.0.0.7:8101
    """
    if not re.fullmatch(r"/[\w./-]+", cache_folder):
        raise OperatorError("The folder of the cache is an absolute path without blanks.")
    _check(certificate, (listen, listen_tls, f"{inside_host}:1"))
    plan = Plan(
        processes={**on_one_machine(), **_processes(process or [])},
        listen=listen,
        listen_tls=listen_tls,
        cache_folder=cache_folder,
        certificate=certificate,
        trusted=_networks(trust or ()),
        operators=_networks(operators or Plan.operators),
        internal={service: f"{inside_host}:830{SERVICES.index(service) + 1}" for service in SERVICES_WITH_INTERNAL_API},
    )
    (folder / "nginx.conf").write_text(nginx_conf(plan))
    (folder / "haproxy.cfg").write_text(haproxy_cfg(plan))
    write_monitoring_files(folder / "prometheus", Receivers(pager, chat, mail_to, smtp))


def _check(certificate: str, addresses: Sequence[str]) -> None:
    """Raises `OperatorError`."""
    if certificate and not re.fullmatch(r"[\w./-]+\.crt", certificate):
        raise OperatorError("The certificate is a path that ends in .crt; its key is in the same folder as .key.")
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            raise OperatorError(f"Cannot listen at {address}: a port, or an address and a port.")


def _networks(texts: Sequence[str]) -> tuple[str, ...]:
    """Raises `OperatorError`."""
    try:
        return tuple(str(ip_network(text)) for text in texts)
    except ValueError as invalid:
        raise OperatorError(f"Not a network: {invalid}.") from invalid


def _processes(texts: list[str]) -> dict[Service, list[Process]]:
    """Raises `OperatorError`."""
    found: dict[Service, list[Process]] = {}
    for text in texts:
        part = _PROCESS.fullmatch(text)
        service = next((name for name in SERVICES if part and name == part["service"]), None)
        if part is None or service is None or (service in SERVICES_WITH_INTERNAL_API) != bool(part["internal"]):
            raise OperatorError(f"Cannot read {text}: as gateway=10.0.0.7:8101, and as queue=10.0.0.7:8102/8202 for "
                          f"{', '.join(SERVICES_WITH_INTERNAL_API)}, which other services call.")  # fmt: skip
        internal = f"{part['host']}:{part['internal']}" if part["internal"] else ""
        found.setdefault(service, []).append(Process(f"{part['host']}:{part['public']}", internal))
    return found
