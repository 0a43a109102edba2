"""`onsale up` starts databases and sandbox beside the import of the services, and leaves nothing when one fails.

Settings from the environment reach the services, except for addresses that `onsale up` chooses itself.
"""

import fcntl
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from onsale.errors import OperatorError
from onsale.local import key_file, suite_services
from onsale.local import up as up_module
from onsale.local.command import _print_addresses
from onsale.local.engines import DataDirInUse, Engines, lock_data_dir
from onsale.local.ports import free_port
from onsale.local.suite import Suite
from onsale.local.up import up
from shared.routes import SERVICES


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
