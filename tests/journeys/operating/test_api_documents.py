"""The OpenAPI documents are what the code says, a generator makes a client from them, and answers are as they say."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from onsale.maintenance.api_documents import Readers, documents
from services.gateway.api.pages import PAGES
from shared.web.api_document import operations
from tests.support.engines.engines import fast_place
from tests.support.running.suite import RunningSuite

BOTH: tuple[Readers, ...] = get_args(Readers)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
FILES, OCTETS = ("application/pdf", "image/svg+xml", "text/csv"), "application/octet-stream"
EXAMPLES = int(os.environ.get("ONSALE_EXAMPLES", "3"))


def kept(readers: Readers) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PAGES / "openapi" / f"{readers}.json").read_text())
    return document


def test_they_are_what_the_code_says() -> None:
    assert {readers: kept(readers) for readers in BOTH} == documents(), "make api-documents"


@pytest.mark.parametrize("readers", BOTH)
def test_every_refusal_is_a_problem_and_every_caller_known(readers: Readers) -> None:
    document, seen = kept(readers), 0
    assert document["servers"] == [{"url": "/"}]
    for path, method, operation in operations(document):
        refusals = {status: told for status, told in operation["responses"].items() if int(status) >= 400}
        assert {"400", "422", "503"} <= refusals.keys(), (path, method)
        assert all("application/problem+json" in told["content"] for told in refusals.values()), (path, method)
        if operation.get("security"):
            assert {"401", "403"} <= refusals.keys(), (path, method)
        if readers == "operators":
            assert operation["security"] == [{"adminKey": []}], (path, method)
        seen += 1
    assert seen > (30 if readers == "fans" else 55)


@pytest.mark.parametrize("readers", BOTH)
def test_a_generator_makes_a_client_that_imports(readers: Readers, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "made.yaml").write_text(json.dumps({"content_type_overrides": dict.fromkeys(FILES, OCTETS)}))
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    where = ["--path", str(PAGES / "openapi" / f"{readers}.json"), "--output-path", str(tmp_path / "made")]
    made = subprocess.run(
        ["openapi-python-client", "generate", *where, "--meta", "none", "--fail-on-warning", "--config", "made.yaml"],
        env=environ, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    every = [".".join(path.relative_to(tmp_path).with_suffix("").parts) for path in (tmp_path / "made").rglob("*.py")]
    imported = subprocess.run(
        [sys.executable, "-c", f"import importlib\nfor name in {every!r}: importlib.import_module(name)"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert imported.returncode == 0, imported.stderr


@pytest.fixture(scope="module")
def own_suite() -> Iterator[RunningSuite]:
    """A suite of its own: what a machine makes up for operators to do is not for a suite that others share."""
    with tempfile.TemporaryDirectory(prefix="onsale-documents-", dir=fast_place()) as folder:
        running = RunningSuite(Path(folder) / "data")
        try:
            yield running.start().wait_until_ready()
        finally:
            assert running.stop() == 0, running.log_text()


@pytest.mark.parametrize("readers", BOTH)
def test_answers_to_made_up_requests_are_as_the_documents_say(own_suite: RunningSuite, readers: Readers) -> None:
    """Every operation but the streams, which do not end by themselves."""
    schema = schemathesis.openapi.from_dict(kept(readers))
    credential = {"Authorization": f"Bearer {own_suite.admin_key}"} if readers == "operators" else {}
    tried, wrong = 0, list[str]()
    for offered in schema.get_all_operations():
        operation = offered.ok()  # type: ignore[union-attr]
        if "text/event-stream" in json.dumps(operation.definition.raw):
            continue

        @settings(max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=operation.as_strategy())
        def as_documented(case: schemathesis.Case) -> None:
            case.call_and_validate(base_url=own_suite.url, headers=credential, checks=CHECKS, timeout=20)

        tried += 1
        try:
            as_documented()
        except (Exception, BaseExceptionGroup) as failed:  # noqa: BLE001 - whatever it is, all of them are told
            wrong.append(f"{operation.label}: {failed}")
    assert tried > 30
    assert not wrong, f"{len(wrong)} of {tried}:\n" + "\n\n".join(wrong)
