"""A setting that is gone is named where it is still set, by the process and by `onsale doctor`."""

import importlib
import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from features.doctor.process import check_process
from services.orders.app import create_app
from services.orders.settings import Settings
from shared.features import package_of
from shared.process.settings import REMOVED

OWNERS = {"ONSALE": "PublicSettings"}
ROOT = Path(__file__).parents[3]
CHANGELOG = ROOT / "CHANGELOG.md"
FOR_AN_EARLIER_VERSION = {  # which runs beside ours in a trial, or is upgraded
    "proof/swarm/edges.py": {"ORDERS_WEBHOOK_ALLOW_LOOPBACK"},
    "docs/operate/upgrade.md": {"ONSALE_ALLOW_INSECURE_COOKIES", "ORDERS_ALLOW_SANDBOX"},
}


def test_no_removed_setting_is_a_setting_and_the_changelog_has_each() -> None:
    told = CHANGELOG.read_text()
    for service, names in REMOVED.items():
        owner = "shared.process" if service == "ONSALE" else package_of(service.lower())
        fields = vars(importlib.import_module(f"{owner}.settings"))[OWNERS.get(service, "Settings")].model_fields
        for name in names.split():
            assert name not in fields
            assert f"`{service}_{name.upper()}`" in told


def test_nothing_sets_or_tells_to_set_a_removed_setting() -> None:
    removed = {f"{service}_{name}".upper() for service, names in REMOVED.items() for name in names.split()}
    paths = [path for folder in ("bench", "deploy", "docs", "proof") for path in (ROOT / folder).rglob("*")]
    for path in paths:
        if path.suffix in (".py", ".md", ".yaml", ".env", ".service", ".sh", ".example"):
            named = set(re.findall(r"\b[A-Z]+_[A-Z_]+\b", path.read_text()))
            assert named & removed <= FOR_AN_EARLIER_VERSION.get(str(path.relative_to(ROOT)), set()), path


@pytest.mark.parametrize(
    "variable", ["ORDERS_SWEEP_S", "ONSALE_SWEEP_S", "ONSALE_CLOCK_OFFSET_MS", "ORDERS_CLOCK_OFFSET_MS"]
)
def test_a_removed_setting_is_named_at_the_start_and_by_doctor(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "7")
    with capture_logs() as lines:
        create_app(Settings())
    assert [line["variable"] for line in lines if line["event"] == "setting.removed"] == [variable]
    [check] = [check for check in check_process(Settings()) if check.subject == "Settings"]
    assert (check.verdict, variable in check.found) == ("look", True)


def test_a_removed_setting_in_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orders_sweep_s").write_text("7\n")
    monkeypatch.setenv("ONSALE_SECRETS_DIR", str(tmp_path))
    assert "ORDERS_SWEEP_S" in str(check_process(Settings()))


def test_without_one_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with capture_logs() as lines:
        create_app(Settings())
    assert not [line for line in lines if line["event"] == "setting.removed"]
    assert "Settings" not in {check.subject for check in check_process(Settings())}
