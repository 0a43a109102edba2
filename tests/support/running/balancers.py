"""nginx and HAProxy as an ordinary user runs them: the generated file, and nothing outside a folder of the test."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import pytest

from onsale.deploy.balancers import SERVICES_WITH_INTERNAL_API, Limits, Plan, Process
from onsale.deploy.haproxy import haproxy_cfg
from onsale.deploy.nginx import nginx_conf
from onsale.local.ports import free_port
from onsale.local.supervisor import die_with_parent
from shared.web.routes import SERVICES, Service

HOST = "127.0.0.1"
Kind = Literal["nginx", "haproxy"]
KINDS: tuple[Kind, ...] = get_args(Kind)
UNLIMITED = Limits(10_000, 10_000, 10_000, 10_000, 10_000, 10_000)


def program(kind: Kind) -> str:
    """Where it is installed, or where it would be."""
    return shutil.which(kind) or f"/usr/sbin/{kind}"


def parameters() -> list[object]:
    """Both, each skipped where it is not installed."""
    return [
        pytest.param(
            kind, marks=pytest.mark.skipif(not Path(program(kind)).exists(), reason=f"{kind} is not installed")
        )
        for kind in KINDS
    ]


def command(kind: Kind, plan: Plan, folder: Path) -> list[str]:
    """Runs it in the foreground on this plan."""
    if kind == "haproxy":
        (folder / "haproxy.cfg").write_text(haproxy_cfg(plan).replace("global\n", "global\n    nbthread 1\n", 1))
        return [program(kind), "-db", "-f", f"{folder}/haproxy.cfg"]
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"    {name}_temp_path {folder}/{name};\n" for name in names)
    conf = nginx_conf(plan).replace("http {\n", "http {\n" + places, 1)
    conf = conf.replace("worker_processes auto", "worker_processes 1")
    (folder / "nginx.conf").write_text(("user root;\n" if os.geteuid() == 0 else "") + conf)
    options = f"pid {folder}/pid; daemon off;"
    return [program(kind), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf", "-g", options]


def in_front_of(*ports: int, limits: Limits = UNLIMITED, trusted: tuple[str, ...] = ()) -> Plan:
    """Every service answers on each of these ports, inside and out."""
    processes = {service: [Process(f"{HOST}:{port}", f"{HOST}:{port}") for port in ports] for service in SERVICES}
    return elsewhere(Plan(processes=processes, limits=limits, trusted=trusted))


def elsewhere(plan: Plan) -> Plan:
    """The same plan on free ports."""
    inside: dict[Service, str] = {service: f"{HOST}:{free_port()}" for service in SERVICES_WITH_INTERNAL_API}
    return replace(
        plan, listen=f"{HOST}:{free_port()}", listen_tls=f"{HOST}:{free_port()}", internal=inside
    )  # fmt: skip


@contextmanager
def balancing(kind: Kind, plan: Plan, folder: Path) -> Iterator[str]:
    """The address at which it answers, while it does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{kind}.log").open("wb") as log:
        process = subprocess.Popen(
            command(kind, plan, folder), stdout=log, stderr=log, preexec_fn=die_with_parent(signal.SIGTERM)
        )
    try:
        _wait_for(plan.listen, process, folder / f"{kind}.log")
        yield f"http://{plan.listen}"
    finally:
        process.terminate()
        process.wait(timeout=10)


def _wait_for(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    host, _, port = address.rpartition(":")
    deadline_s = time.monotonic() + 20
    while True:
        with socket.socket() as asked:
            if asked.connect_ex((host, int(port))) == 0:
                return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline_s, f"no answer at {address}: {log.read_text()}"
        time.sleep(0.01)
