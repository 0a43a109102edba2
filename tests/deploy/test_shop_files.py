"""The files of a shop behind the gate and of the gates at the edge are what their pages say."""

import re
from pathlib import Path

import yaml

from proof.deploy.beside_a_shop import PAGE, page_with, saved
from shared.contracts.event_file import EventFile
from tests.support.programs import DOCS

DEPLOY = Path(__file__).parents[2] / "deploy"
PRETIX = DEPLOY / "shops" / "pretix"


def test_the_page_shows_what_was_measured() -> None:
    assert page_with(saved(), PAGE.read_text()) == PAGE.read_text()


def test_the_event_file_is_valid_and_its_sites_are_those_of_nginx() -> None:
    event = EventFile.model_validate(yaml.safe_load((PRETIX / "event.yaml").read_text()))
    nginx = (PRETIX / "nginx.conf").read_text()
    [site] = event.room.model_dump()["gate"]["return_to"]
    assert f"listen {site.removeprefix('http://')};" in nginx
    assert {event.event_id} == set(re.findall(r"event=([\w-]+)", nginx))
    assert f"onsale_pass_{event.event_id}=" in nginx


def test_the_shops_packages_are_pinned_by_hashes_and_come_from_no_fixed_address() -> None:
    lock = (PRETIX / "requirements.lock").read_text()
    packages = re.split(r"\n(?=\S)", lock)
    assert [package for package in packages if not re.search(r"==[^\n]+\\\n +--hash=sha256:", package)] == []
    assert "://" not in lock


def test_the_page_of_the_edge_gates_names_every_setting() -> None:
    gate, page = (DEPLOY / "edge" / "gate.js").read_text(), (DOCS / "use" / "edge-gates.md").read_text()
    assert set(re.findall(r"ONSALE_[A-Z_]+", gate)) == set(re.findall(r"ONSALE_[A-Z_]+", page))
