"""Containers of the deployment files in one form for compose and Kubernetes, so that the same tests check both."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "onsale"
VALUES = ("small", "production")  # the chart's examples
IMAGE = "onsale"


@dataclass
class Container:
    """A container of the Onsale image: its command, environment, health checks and time to stop."""

    name: str
    command: list[str]
    environment: dict[str, str]
    stop_grace_s: float
    probe_paths: list[str] = field(default_factory=list)

    @property
    def service(self) -> str | None:
        """The service that it serves, if any."""
        return self.command[1] if self.command[0] == "serve" else None


def image_environment() -> dict[str, str]:
    """The variables that the last stage of the Dockerfile sets."""
    last_stage = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")[-1]
    return dict(re.findall(r"(\w+)=(\S+)", re.sub(r"^(?!ENV|    \w+=).*$", "", last_stage, flags=re.M)))


@cache
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text()))


def compose_containers() -> Iterator[Container]:
    for name, service in compose()["services"].items():
        if IMAGE in service["image"] and "entrypoint" not in service:
            environment = {key: _default(str(value)) for key, value in service["environment"].items()}
            check = service["healthcheck"]
            paths = [] if check.get("disable") else re.findall(r"127.0.0.1:\d+(/\w+)", str(check))
            grace_s = float(service["stop_grace_period"].removesuffix("s"))
            yield Container(name, service["command"], image_environment() | environment, grace_s, paths)


def _default(text: str) -> str:
    """`${NAME:-value}` without a variable of this name."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def pods(objects: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and pod specification of each workload."""
    for each in objects:
        spec = each.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template and "containers" in template.get("spec", {}):
            yield each["metadata"]["name"], template["spec"]


def kubernetes_containers(objects: list[dict[str, Any]]) -> Iterator[Container]:
    [settings] = [one["data"] for one in objects if one["kind"] == "ConfigMap"]
    for name, pod in pods(objects):
        for container in (*pod["containers"], *pod.get("initContainers", [])):
            if f"/{IMAGE}:" in container["image"]:
                environment = image_environment() | (settings if "envFrom" in container else {})
                probes = [container[p]["httpGet"]["path"] for p in container if p.endswith("Probe")]
                grace_s = float(pod.get("terminationGracePeriodSeconds", 30))
                yield Container(name, [str(argument) for argument in container["args"]], environment, grace_s, probes)
