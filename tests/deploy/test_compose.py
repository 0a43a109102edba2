"""compose.yaml fits its schema, names files that exist, and reads variables that `.env.example` explains."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

from tests.deploy.manifests import DEPLOY


def test_compose_fits_its_schema_and_names_files_that_exist() -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    command: list[str | Path] = [program, "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    file = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for service in file["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./secrets"):
                continue
            assert (DEPLOY / source).is_file() if source.startswith("./") else source in file["volumes"]
        assert set(service.get("networks", [])) <= set(file["networks"])
        assert set(service.get("depends_on", {})) <= set(file["services"])


def test_the_example_of_an_env_file_has_every_variable_of_compose_and_its_default() -> None:
    read = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", (DEPLOY / "compose.yaml").read_text()))
    assert "${" not in re.sub(r"\$\{\w+:-[^}]*\}", "", (DEPLOY / "compose.yaml").read_text()), "one has no default"
    lines = (DEPLOY / ".env.example").read_text().splitlines()
    assert dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#")) == read
    assert {
        line.split("=")[0] for line in (DEPLOY / "rehearsal.env").read_text().splitlines() if line[0] != "#"
    } <= set(read)
