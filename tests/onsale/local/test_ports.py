"""Free ports for servers, outside the kernel's ephemeral range, and the wait until a server answers.

`onsale up` starts databases and sandbox beside the import of the services, and leaves nothing when one fails.

Settings from the environment reach the services, except for addresses that `onsale up` chooses itself.
"""

import asyncio
import fcntl
import os
import random
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from onsale.errors import OperatorError
from onsale.local import key_file, ports, suite_services
from onsale.local import up as up_module
from onsale.local.command import _print_addresses
from onsale.local.engines import DataDirInUse, Engines, lock_data_dir
from onsale.local.ports import HOST, SERVERS, free_port, free_ports, start_on_free_port
from onsale.local.process import Child
from onsale.local.suite_services import Suite
from onsale.local.up import up
from shared.routes import SERVICES

EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_servers_port_is_below_the_ephemeral_ports() -> None:
    port = free_port()
    assert port in SERVERS
    first = int(EPHEMERAL_PORTS.read_text().split()[0]) if EPHEMERAL_PORTS.exists() else 49_152
    assert port < first
    with socket.socket() as server:
        server.bind((HOST, port))


def test_processes_with_the_same_seed_choose_different_ports() -> None:
    chosen = []
    for _ in range(2):
        random.seed(1)
        chosen.append([free_port() for _ in range(3)])
    assert chosen[0] != chosen[1]


def test_a_port_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as first, socket.socket() as second:
        first.bind((HOST, used := free_port()))
        first.listen()
        monkeypatch.setattr(ports, "SERVERS", range(used, used + 2))
        assert free_port() == used + 1
        second.bind((HOST, used + 1))
        with pytest.raises(OperatorError, match="Fewer than 1 ports"):
            free_port()


def test_ports_chosen_one_after_the_other_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may listen on the first when the second is chosen. Two sockets with `SO_REUSEADDR` can be bound to one
    port; only listening on it fails.
    """
    monkeypatch.setattr(ports, "SERVERS", range(first := free_port(), first + 80))
    chosen = [port for _ in range(5) for port in free_ports(10)]
    assert len(set(chosen)) == 50


class RunningChild(Child):
    """A running child process with an empty log."""

    name, log_path = "The payment sandbox", Path("sandbox.log")
    returncode: int | None = None
    stopped = False

    def __init__(self) -> None:
        """No process is started."""

    def log_tail(self) -> str:
        return "its log is empty"

    async def stop(self) -> None:
        self.stopped = True


async def test_a_running_process_is_waited_for_and_reported_by_name_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "REPORT_EVERY_S", 0.05)
    monkeypatch.setattr(ports, "_is_open", lambda port: True)
    checks, reports = 0, list[str]()

    async def is_ready(port: int) -> bool:
        nonlocal checks
        checks += 1
        return checks > 20

    _, port = await start_on_free_port(lambda port: RunningChild(), is_ready, report=reports.append)
    assert port in SERVERS
    assert len(reports) > 1
    assert reports[0].startswith("Still waiting for the payment sandbox (")


async def test_a_process_that_never_answers_is_reported_in_one_sentence_and_stopped() -> None:
    async def never(port: int) -> bool:
        raise AssertionError("nothing listens there, so nothing needs to be asked")

    child = RunningChild()
    with pytest.raises(OperatorError, match=r"^The payment sandbox does not answer after 0.1 s: .* \(more in sandbox"):
        await start_on_free_port(lambda port: child, never, ready_within_s=0.1)
    assert child.stopped


async def test_services_that_start_slowly_are_waited_for_until_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second wait has a deadline that is over at once."""
    monkeypatch.setattr(ports, "REPORT_EVERY_S", 0.05)
    answers, reports = iter([*[False] * 4, True]), list[str]()

    async def starting() -> bool:
        return next(answers)

    suite = Suite(tmp_path, [], report=reports.append)
    child = RunningChild()
    await suite_services._wait_for_processes(suite, [child], {"suite-1": starting})
    assert "Still waiting for the readiness of suite-1" in reports[0]
    answers = iter([False] * 9)
    monkeypatch.setattr(suite_services, "StartupDeadline", lambda report: ports.StartupDeadline(report, within_s=0))
    with pytest.raises(OperatorError, match=r"^The readiness of suite-1 does not answer after 0 s: more in"):
        await suite_services._wait_for_processes(suite, [child], {"suite-1": starting})


async def test_a_process_that_ends_while_it_is_waited_for_is_reported_at_once(tmp_path: Path) -> None:
    async def never() -> bool:
        return False

    ended = RunningChild()
    ended.name, ended.returncode = "The process suite-1", 1
    with pytest.raises(OperatorError, match=r"^The process suite-1 has ended: its log is empty \(more in sand"):
        async with asyncio.timeout(5):
            await suite_services._wait_for_processes(Suite(tmp_path, []), [ended], {"suite-1": never})


async def test_the_suite_is_ready_when_every_process_knows_the_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process reads a moment later what another one wrote. The fans of the second command meet any of them."""
    asked = Counter[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked[str(request.url)] += 1
        return httpx.Response(200 if asked[str(request.url)] > (request.url.port or 0) - 7_000 else 404)

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    monkeypatch.setattr(suite_services, "POLL_S", 0)
    monkeypatch.setattr(httpx, "AsyncClient", lambda **_: client)
    monkeypatch.setattr(suite_services, "AdminClient", lambda *_: AsyncMock())
    monkeypatch.setattr(suite_services, "admin_key", lambda *_: "")
    events: Any = [SimpleNamespace(event_id="a"), SimpleNamespace(event_id="b")]
    await suite_services.apply(Suite(tmp_path, events, own_ports={"suite-1": 7_000, "suite-2": 7_003}))
    assert asked["http://127.0.0.1:7003/events/a"] == asked["http://127.0.0.1:7003/events/b"] == 4
    assert asked["http://127.0.0.1:7000/events/b"]


async def fails(suite: Suite) -> OperatorError:
    with pytest.raises(OperatorError) as failed:
        async with up(suite):
            pass
    return failed.value


async def test_nothing_is_written_into_a_data_directory_that_another_suite_uses(tmp_path: Path) -> None:
    _, lock_fd = lock_data_dir(tmp_path)
    before = files(tmp_path)
    assert isinstance(await fails(Suite(tmp_path, [])), DataDirInUse)
    assert files(tmp_path) == before
    os.close(lock_fd)


async def test_when_a_database_does_not_answer_the_sandbox_ends_and_the_directory_is_free(tmp_path: Path) -> None:
    nowhere = f"postgresql://onsale@127.0.0.1:{free_port()}/onsale"
    refused = await fails(Suite(tmp_path, [], environ={**os.environ, "ONSALE_POSTGRES_URL": nowhere}))
    assert "no server answers there" in str(refused)
    nothing_holds(tmp_path)


async def test_when_the_keys_cannot_be_read_nothing_keeps_running(tmp_path: Path) -> None:
    lock_fd = lock_data_dir(tmp_path)[1]
    os.close(lock_fd)
    (tmp_path / key_file.KEY_FILE).write_text("no JSON")
    with pytest.raises(ValueError, match="Expecting value"):
        async with up(Suite(tmp_path, [])):
            pass
    nothing_holds(tmp_path)


async def test_the_schemas_are_migrated_while_the_services_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrating, importing = threading.Event(), list[int]()
    import_migrations = up_module._migrations

    def migrations() -> ModuleType:
        importing.append(threading.get_ident())
        return import_migrations()

    def load(suite: Suite) -> None:
        assert importing == [threading.get_ident()], "two threads meet modules that the other has imported in part"
        assert migrating.wait(60)
        raise OperatorError("The services are imported at the same time.")

    def report(line: str) -> None:
        if line.startswith("Migrating"):
            migrating.set()

    monkeypatch.setattr(up_module, "_migrations", migrations)
    monkeypatch.setattr(up_module, "_load", load)
    assert "at the same time" in str(await fails(Suite(tmp_path, [], report=report)))
    nothing_holds(tmp_path)


@pytest.mark.parametrize(("processes", "services"), [(1, len(SERVICES)), (2, 0)])
def test_only_services_that_run_in_this_process_are_imported(
    processes: int, services: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[str] = []
    monkeypatch.setattr(up_module, "import_module", imported.append)
    up_module._load(Suite(tmp_path, [], processes=processes))
    assert sum(module.endswith(".app") for module in imported) == services


@pytest.mark.parametrize("link", ["", "http://localhost:8000/console/#link=once"])
def test_the_console_is_named_where_there_is_one(link: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _print_addresses(Suite(tmp_path, [], console_link=link))
    assert ("/console/" in capsys.readouterr().out) == bool(link)


def files(data_dir: Path) -> list[Path]:
    return sorted(data_dir.rglob("*"))


def nothing_holds(data_dir: Path) -> None:
    """Each process started on a data directory holds a lock there."""
    for lock in (data_dir / "engines").glob("*.lock"):
        descriptor = os.open(lock, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


def environment(tmp_path: Path, environ: Mapping[str, str] = {}, *, processes: int = 1) -> dict[str, str]:
    suite = Suite(tmp_path, [], processes=processes, environ={"ONSALE_ADMIN_KEY": "k" * 32, **environ})
    engines = Engines("postgresql://here/onsale", "redis://here")
    of_all = suite_services.environment(suite, engines, {"ONSALE_HOLDER_KEYS": "made"}, "http://sandbox")
    return suite_services.process_environment(suite, of_all)


def test_the_public_url_comes_from_the_environment(tmp_path: Path) -> None:
    public = "https://tickets.example.org"
    assert environment(tmp_path, {"ONSALE_PUBLIC_URL": public})["ONSALE_PUBLIC_URL"] == public
    assert environment(tmp_path)["ONSALE_PUBLIC_URL"] == "http://localhost:8000"


def test_addresses_of_services_and_sandbox_are_chosen_by_the_suite(tmp_path: Path) -> None:
    given = {"ONSALE_QUEUE_URL": "http://elsewhere", "ONSALE_SANDBOX_URL": "http://elsewhere"}
    chosen = environment(tmp_path, given | {"ONSALE_HOLDER_KEYS": "mine"})
    assert chosen["ONSALE_SANDBOX_URL"] == "http://sandbox"
    assert chosen["ONSALE_QUEUE_URL"].startswith("http://127.0.0.1:")
    assert chosen["ONSALE_HOLDER_KEYS"] == "mine"


def test_processes_share_limits_and_connections(tmp_path: Path) -> None:
    """PostgreSQL of a suite takes 200 connections: four pools of each process, and one that listens."""
    assert not environment(tmp_path).keys() & {"ONSALE_PROCESSES", "ONSALE_POSTGRES_POOL_MAX"}
    for processes, pool in ((2, 5), (3, 4), (8, 4)):
        chosen = environment(tmp_path, processes=processes)
        assert (chosen["ONSALE_PROCESSES"], chosen["ONSALE_POSTGRES_POOL_MAX"]) == (str(processes), str(pool))
        assert processes * (4 * pool + 1) < 200
    assert environment(tmp_path, {"ONSALE_POSTGRES_POOL_MAX": "7"}, processes=4)["ONSALE_POSTGRES_POOL_MAX"] == "7"


def test_each_process_has_addresses_of_its_own(tmp_path: Path) -> None:
    one, two = environment(tmp_path, processes=2), environment(tmp_path, processes=2)
    assert one["QUEUE_INTERNAL_PORT"] != two["QUEUE_INTERNAL_PORT"]
    assert one["ONSALE_QUEUE_URL"].endswith(f":{one['QUEUE_INTERNAL_PORT']}"), "a process calls its own services"
