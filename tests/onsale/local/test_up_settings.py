"""Settings from the environment reach the services, except for addresses that `onsale up` chooses itself."""

from collections.abc import Mapping
from pathlib import Path

from onsale.local import suite_services
from onsale.local.engines import Engines
from onsale.local.suite import Suite


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
