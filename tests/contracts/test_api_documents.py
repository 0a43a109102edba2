"""The OpenAPI documents match the code and generate a client that imports. Whether they describe the answers of a
running suite is tried in `proof/bad_input`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from features.pages.gateway.documents import PAGES
from proof.bad_input.generated.documents import read_document
from shared.web.api_document import operations
from tools.openapi import Readers, documents

ALL_READERS: tuple[Readers, ...] = get_args(Readers)
FILES, OCTETS = ("application/pdf", "image/svg+xml", "image/*", "text/csv"), "application/octet-stream"


def test_the_documents_match_the_code() -> None:
    assert {readers: read_document(readers) for readers in ALL_READERS} == documents(), "make api-documents"


ROLES = [[{"adminKey": [role]}] for role in ("viewer", "operator", "admin")]
SESSION: dict[tuple[str, str], list[list[dict[str, list[str]]]]] = {
    ("/console/session", "post"): [[]],
    **{("/console/session", method): [[{"adminKey": []}]] for method in ("get", "delete")},
}


@pytest.mark.parametrize("readers", ALL_READERS)
def test_every_refusal_is_a_problem_document_and_every_admin_operation_needs_a_key_of_a_role(readers: Readers) -> None:
    document, checked = read_document(readers), 0
    assert document["servers"] == [{"url": "/"}]
    for path, method, operation in operations(document):
        refusals = {status: response for status, response in operation["responses"].items() if int(status) >= 400}
        assert {"400", "422", "503"} <= refusals.keys(), (path, method)
        assert all("application/problem+json" in response["content"] for response in refusals.values()), (path, method)
        if operation.get("security"):
            assert {"401", "403"} <= refusals.keys(), (path, method)
        if readers == "operators":
            expected = SESSION.get((path, method), ROLES)
            assert operation["security"] in expected, (path, method)
        checked += 1
    assert checked > (30 if readers == "fans" else 55)


def test_what_may_be_changed_by_somebody_else_meanwhile_says_so() -> None:
    """A request names the version that was read in `If-Match`, or in its body."""
    document = read_document("operators")
    answers = {f"{method} {path}": operation["responses"] for path, method, operation in operations(document)}
    stock = "/admin/inventory/events/{event_id}"
    for operation in (
        "patch /admin/events/{event_id}/room", f"post {stock}/seats/block", f"post {stock}/seats/unblock",
        f"post {stock}/sections/{{section_id}}/resize", f"put {stock}/allotments/{{allotment_id}}",
        f"post {stock}/allotments/{{allotment_id}}/open",
    ):  # fmt: skip
        assert "412" in answers[operation], operation
    assert "412" not in answers[f"get {stock}/stock"]


def test_what_a_page_without_scripts_posts_may_be_answered_with_a_redirect() -> None:
    redirected = {
        path for path, method, operation in operations(read_document("fans"))
        if method == "post" and "303" in operation["responses"]
    }  # fmt: skip
    event, order = "/events/{event_id}", "/orders/{reference}"
    hold = f"{event}/reservations"
    assert redirected >= {f"{event}/queue", f"{event}/queue/pass", f"{event}/queue/pass/extend", hold, "/orders"}
    assert redirected >= {f"{hold}/{{reservation_id}}/extend", f"{hold}/{{reservation_id}}/keep"}
    assert redirected >= {f"{order}/payments", f"{order}/cancel", f"{order}/extend"}


@pytest.mark.proof
@pytest.mark.parametrize("readers", ALL_READERS)
def test_a_client_generated_from_a_document_imports(readers: Readers, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "made.yaml").write_text(json.dumps({"content_type_overrides": dict.fromkeys(FILES, OCTETS)}))
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    paths = ["--path", str(PAGES / "openapi" / f"{readers}.json"), "--output-path", str(tmp_path / "made")]
    generated = subprocess.run(
        ["openapi-python-client", "generate", *paths, "--meta", "none", "--fail-on-warning", "--config", "made.yaml"],
        env=environ, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert generated.returncode == 0, generated.stdout + generated.stderr
    names = [".".join(path.relative_to(tmp_path).with_suffix("").parts) for path in (tmp_path / "made").rglob("*.py")]
    imported = subprocess.run(
        [sys.executable, "-c", f"import importlib\nfor name in {names!r}: importlib.import_module(name)"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert imported.returncode == 0, imported.stderr
