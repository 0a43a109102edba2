"""The SBOM fits CycloneDX' schema and the lock files, the page of licences is up to date, no licence is copyleft."""

import json
import re
from functools import cache

import pytest

from tests.deploy.test_kubernetes import ROOT
from tools import licences

COPYLEFT = re.compile(r"\b(A?GPL|SSPL|EUPL|OSL|CPAL|RPL|CC-BY-NC|BUSL)\b")
LGPL = {"python-bidi"}  # a package of its own, used unchanged, that may be replaced


@cache
def parts() -> list[licences.Component]:
    return licences.components()


def test_the_page_is_what_make_sbom_writes() -> None:
    assert (ROOT / "docs" / "reference" / "licences.md").read_text() == licences.page(parts()), "make sbom"


def test_the_sbom_fits_its_schema_and_has_what_the_lock_files_name() -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator  # loads slowly

    written = licences.sbom(parts())
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(written) is None
    listed = {part["purl"]: part for part in json.loads(written)["components"]}
    for name, (version, hashes) in licences.locked("requirements.lock").items():
        part = listed[f"pkg:pypi/{name}@{version}"]
        assert {each["content"] for each in part["hashes"]} == set(hashes)
        assert part["licenses"]
    text = (ROOT / "requirements.lock").read_text()
    assert len(re.findall("^[a-z].*==", text, re.M)) == len(licences.locked("requirements.lock"))
    assert len(listed) == len(parts())


def copyleft(listed: list[licences.Component]) -> list[str]:
    return [part.name for part in listed if COPYLEFT.search(part.licence)]


def test_no_part_is_under_a_licence_that_binds_what_uses_it() -> None:
    assert not copyleft(parts())
    assert {part.name for part in parts() if "LGPL" in part.licence} == LGPL


@pytest.mark.parametrize("licence", ["GPL-3.0-only", "AGPL-3.0-or-later", "MIT AND GPL-2.0-or-later"])
def test_a_copyleft_licence_is_found(licence: str) -> None:
    added = licences.Component("pypi", "new", "1", licence, "required", "")
    assert copyleft([*parts(), added]) == ["new"]


def test_every_font_of_the_package_is_listed_with_its_licence_beside_it() -> None:
    fonts = [path for folder in ("services", "shared", "onsale", "features") for path in (ROOT / folder).rglob("*.ttf")]
    assert {path.stem for path in fonts} == set(licences.FONTS)
    assert all((path.parent / "LICENSE.txt").exists() for path in fonts)
