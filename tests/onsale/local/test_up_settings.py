"""Settings from the environment reach the services, except for addresses that `onsale up` chooses itself."""

from pathlib import Path

from onsale.local import suite_services
from onsale.local.engines import Engines
from onsale.local.suite import Suite


def environment(tmp_path: Path, **environ: str) -> dict[str, str]:
    suite = Suite(tmp_path, [], environ={"ONSALE_ADMIN_KEY": "k" * 32, **environ})
    engines = Engines("postgresql://here/onsale", "redis://here")
    return suite_services.environment(suite, engines, {"ONSALE_HOLDER_KEYS": "made"}, "http://sandbox")


def test_the_public_url_comes_from_the_environment(tmp_path: Path) -> None:
    public = "https://tickets.example.org"
    assert environment(tmp_path, ONSALE_PUBLIC_URL=public)["ONSALE_PUBLIC_URL"] == public
    assert environment(tmp_path)["ONSALE_PUBLIC_URL"] == "http://localhost:8000"


def test_addresses_of_services_and_sandbox_are_chosen_by_the_suite(tmp_path: Path) -> None:
    given = {"ONSALE_QUEUE_URL": "http://elsewhere", "ONSALE_SANDBOX_URL": "http://elsewhere"}
    chosen = environment(tmp_path, **given, ONSALE_HOLDER_KEYS="mine")
    assert chosen["ONSALE_SANDBOX_URL"] == "http://sandbox"
    assert chosen["ONSALE_QUEUE_URL"].startswith("http://127.0.0.1:")
    assert chosen["ONSALE_HOLDER_KEYS"] == "mine"
