"""What the deployment files run, in one shape for compose and Kubernetes: one set of questions does for both."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
BASE = KUBERNETES / "base"
OVERLAYS = ("small", "production")
OURS = "onsale"


@dataclass
class Ran:
    """A container of our image: `words` is its command line, `ends_within_s` how long it may take to stop."""

    name: str
    words: list[str]
    environment: dict[str, str]
    ends_within_s: float
    healthy: list[str] = field(default_factory=list)

    @property
    def service(self) -> str | None:
        """The service it is, if it is one."""
        return self.words[1] if self.words[0] == "serve" else None


def image_environment() -> dict[str, str]:
    """What the Dockerfile's last stage sets."""
    last = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")[-1]
    return dict(re.findall(r"(\w+)=(\S+)", re.sub(r"^(?!ENV|    \w+=).*$", "", last, flags=re.M)))


@cache
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text()))


def in_compose() -> Iterator[Ran]:
    for name, one in compose()["services"].items():
        if OURS in one["image"] and "entrypoint" not in one:
            environment = {key: _default(str(value)) for key, value in one["environment"].items()}
            check = (
                [] if one["healthcheck"].get("disable") else re.findall(r"127.0.0.1:\d+(/\w+)", str(one["healthcheck"]))
            )
            grace_s = float(one["stop_grace_period"].removesuffix("s"))
            yield Ran(name, one["command"], image_environment() | environment, grace_s, check)


def _default(text: str) -> str:
    """`${NAME:-value}` as it is when nobody sets it."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def documents(folder: Path) -> Iterator[dict[str, Any]]:
    """Every object in the folder's files."""
    for path in sorted(folder.glob("*.yaml")):
        if path.name != "kustomization.yaml":
            yield from yaml.safe_load_all(path.read_text())


def kustomization(folder: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((folder / "kustomization.yaml").read_text()))


def configuration(*folders: Path) -> dict[str, str]:
    """What the config map of these says, later folders over earlier ones."""
    found: dict[str, str] = {}
    for folder in folders:
        for generated in kustomization(folder).get("configMapGenerator", []):
            found |= dict(line.split("=", 1) for line in generated["literals"])
    return found


def pods(objects: Iterator[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and pod of everything that runs."""
    for one in objects:
        spec = one.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template and "containers" in template.get("spec", {}):
            yield one["metadata"]["name"], template["spec"]


def in_kubernetes(overlay: str) -> Iterator[Ran]:
    settings = configuration(BASE, KUBERNETES / "overlays" / overlay)
    for name, pod in pods(documents(BASE)):
        for container in (*pod["containers"], *pod.get("initContainers", [])):
            if container["image"] == OURS:
                environment = image_environment() | (settings if "envFrom" in container else {})
                probes = [container[p]["httpGet"]["path"] for p in container if p.endswith("Probe")]
                grace_s = float(pod.get("terminationGracePeriodSeconds", 30))
                yield Ran(name, [str(word) for word in container["args"]], environment, grace_s, probes)
