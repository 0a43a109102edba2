"""Runs nginx and HAProxy with the generated configuration, without writing outside a folder of the test."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import pytest

from onsale.deploy.balancer_files import haproxy_cfg, nginx_conf
from onsale.deploy.balancers import SERVICES_WITH_INTERNAL_API, Limits, Plan, Process
from onsale.local.ports import HOST, free_port
from shared.routes import SERVICES, Service
from tests.support.programs import need, needs
from tests.support.running.program import Program
from tests.support.wait import until

Kind = Literal["nginx", "haproxy"]
KINDS: tuple[Kind, ...] = get_args(Kind)
UNLIMITED = Limits(10_000, 10_000, 10_000)


def balancer_parameters() -> list[object]:
    """Parameters for both balancers; one that is not installed is skipped."""
    return [pytest.param(kind, marks=needs(kind)) for kind in KINDS]


def command(kind: Kind, plan: Plan, folder: Path) -> list[str]:
    """Writes the configuration for this plan; the command that runs it in the foreground."""
    if kind == "haproxy":
        (folder / "haproxy.cfg").write_text(haproxy_cfg(plan).replace("global\n", "global\n    nbthread 1\n", 1))
        return [need(kind), "-db", "-f", f"{folder}/haproxy.cfg"]
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temp_paths = "".join(f"    {name}_temp_path {folder}/{name};\n" for name in names)
    conf = nginx_conf(replace(plan, cache_folder=f"{folder}/cache")).replace("http {\n", "http {\n" + temp_paths, 1)
    conf = conf.replace("worker_processes auto", "worker_processes 1")
    (folder / "nginx.conf").write_text(("user root;\n" if os.geteuid() == 0 else "") + conf)
    options = f"pid {folder}/pid; daemon off;"
    return [need(kind), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf", "-g", options]


def plan_for_ports(*ports: int, limits: Limits = UNLIMITED, trusted: tuple[str, ...] = ()) -> Plan:
    """A plan in which every service listens on each of these ports, for public and internal requests."""
    processes = {service: [Process(f"{HOST}:{port}", f"{HOST}:{port}") for port in ports] for service in SERVICES}
    return on_free_ports(Plan(processes=processes, limits=limits, trusted=trusted))


def on_free_ports(plan: Plan) -> Plan:
    """The same plan on free ports."""
    internal: dict[Service, str] = {service: f"{HOST}:{free_port()}" for service in SERVICES_WITH_INTERNAL_API}
    return replace(
        plan, listen=f"{HOST}:{free_port()}", listen_tls=f"{HOST}:{free_port()}", internal=internal
    )  # fmt: skip


@contextmanager
def running_balancer(kind: Kind, plan: Plan, folder: Path) -> Iterator[str]:
    """The URL of a balancer that runs inside this context."""
    folder.mkdir(parents=True, exist_ok=True)
    balancer = Program(command(kind, plan, folder), folder / f"{kind}.log")
    balancer.start()
    host, _, port = plan.listen.rpartition(":")

    def listens() -> bool:
        assert balancer.is_running, balancer.log_text()
        with socket.create_connection((host, int(port))):
            return True

    try:
        until(listens, what=kind)
        yield f"http://{plan.listen}"
    finally:
        balancer.end(signal.SIGTERM)
