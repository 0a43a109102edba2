"""A suite with a process for each service behind one address, so that a part of it can fall silent or end alone."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx

from onsale.deploy.balancers import Plan, Process
from onsale.local.engines import Engines
from onsale.local.ports import HOST
from proof.drills.fleet import Fleet, environ_without_settings, installed_balancers
from shared.routes import SERVICES
from tests.support.engines.engines import fast_directory, in_database, run_in_thread, sql
from tests.support.running.program import Program
from tests.support.running.suite import UNLIMITED, command, on_free_ports
from tests.support.wait import until


class SuiteOfParts(Fleet):
    """Answers at `url`, as `onsale up` does. A part that has ended is started again with `programs[name].start()`."""

    def __init__(self, data_dir: Path, postgres_url: str) -> None:
        super().__init__(data_dir, postgres_url)
        for name in self.ports:
            self.programs[name].env["CONSOLE_ADMIN_URL"] = self.url
        both = {name: (self.ports[name][0], self.internal_ports[name][0]) for name in SERVICES}
        processes = {name: [Process(f"{HOST}:{public}", f"{HOST}:{inside}")] for name, (public, inside) in both.items()}
        plan = on_free_ports(Plan(processes=processes, limits=UNLIMITED))
        kind = installed_balancers()[0]
        argv = command(kind, replace(plan, listen=f"{HOST}:{self.port}"), data_dir)
        self.programs["balancer"] = Program(argv, data_dir / f"{kind}.log", env=environ_without_settings())

    def wait_until_ready(self) -> "SuiteOfParts":
        super().wait_until_ready()
        until(lambda: httpx.get(f"{self.url}/events", timeout=5, trust_env=False).is_success, what="the balancer")
        return self

    def _transport(self) -> httpx.AsyncBaseTransport:
        return httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=100))


@contextmanager
def running_parts(engines: Engines, migrated: str, database: str) -> Iterator[SuiteOfParts]:
    """A ready suite on a copy, named `database`, of the migrated database."""
    run_in_thread(sql(engines, f"create database {database} template {migrated}"))
    with tempfile.TemporaryDirectory(prefix="onsale-parts-", dir=fast_directory()) as folder:
        suite = SuiteOfParts(Path(folder) / "data", in_database(engines, database))
        try:
            suite.start()
            yield suite.wait_until_ready()
        finally:
            suite.end()
