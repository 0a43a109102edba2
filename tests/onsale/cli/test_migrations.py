"""`onsale migrate`: one line for each service, exit codes, and a check that changes nothing."""

import pytest

from onsale.errors import OperatorError
from onsale.local.engines import Engines, with_driver
from onsale.server import serve
from shared.postgres.schema_version import revisions
from tests.support.engines.engines import run_in_thread, sql
from tests.support.running.command_line import Command


def test_migrate_check_reports_pending_migrations_and_changes_nothing(
    onsale: Command, monkeypatch: pytest.MonkeyPatch, engines: Engines, migrated: str
) -> None:
    server = with_driver(engines.postgres_url).rsplit("/", 1)[0]
    result = onsale("migrate", "--check", "--postgres-url", f"{server}/{migrated}")
    assert (result.returncode, result.stdout.count("up to date")) == (0, 4)

    run_in_thread(sql(engines, "create database unmigrated"))
    monkeypatch.setenv("ONSALE_POSTGRES_URL", f"{server}/unmigrated")
    for _ in range(2):
        result = onsale("migrate", "--check")
        assert result.returncode == 1
        assert f"orders: is to go to {revisions('orders')[-1]} (at nothing)" in result.stdout
    run_in_thread(sql(engines, "drop database unmigrated with (force)"))
    monkeypatch.delenv("ONSALE_POSTGRES_URL")
    assert "The database of queue is not set" in onsale("migrate").stderr


def test_invalid_settings_are_reported_in_one_line_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONSALE_ENVIRONMENT", "production")
    with pytest.raises(OperatorError, match=r"^queue: in production these secrets must be set: checkout"):
        serve.create(["queue"])
    monkeypatch.setenv("ONSALE_PORT", "70000-secret")
    with pytest.raises(OperatorError, match=r"^queue: port: This must be a whole number") as refused:
        serve.create(["queue"])
    assert "secret" not in str(refused.value)
