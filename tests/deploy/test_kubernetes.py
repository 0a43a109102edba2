"""Manifests fit Kubernetes' own schemas, pods are hardened, and nothing is scaled by a metric that nobody has."""

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from shared.web.routes import SERVICES
from tests.deploy.manifests import BASE, DEPLOY, KUBERNETES, OVERLAYS, documents, kustomization, pods

VERSION = "1.33"
SMALL = KUBERNETES / "overlays" / "small"
PODS = [*pods(documents(BASE)), *pods(documents(SMALL))]
KUSTOMIZE = shutil.which("kubectl")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each overlay as kustomize builds it; the test is skipped where there is no kubectl."""
    if KUSTOMIZE is None:
        pytest.skip("needs kubectl, for kustomize")
    files = {overlay: tmp_path_factory.mktemp("built") / f"{overlay}.yaml" for overlay in OVERLAYS}
    for overlay, file in files.items():
        command: list[str | Path] = [KUSTOMIZE, "kustomize", KUBERNETES / "overlays" / overlay]
        file.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return files


def test_every_object_fits_its_schema(request: pytest.FixtureRequest) -> None:
    """As they stand; with kubectl as the overlays make them."""
    as_they_stand = [*BASE.glob("[!k]*.yaml"), SMALL / "databases.yaml", KUBERNETES / "metrics" / "adapter.yaml"]
    paths = list(request.getfixturevalue("built").values()) if KUSTOMIZE else as_they_stand
    program = Path(sys.executable).with_name("kubernetes-validate")
    command: list[str | Path] = [program, "--strict", "-k", VERSION, *paths]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_names_versions_and_its_own_settings(overlay: str, built: dict[str, Path]) -> None:
    objects = list(yaml.safe_load_all(built[overlay].read_text()))
    containers = [container for _, pod in pods(iter(objects)) for container in pod["containers"]]
    assert all(re.search(r":\d[\w.-]*$", container["image"]) for container in containers)
    [settings] = [one for one in objects if one["kind"] == "ConfigMap"]
    mounted = {c["envFrom"][0]["configMapRef"]["name"] for c in containers if "envFrom" in c}
    assert mounted == {settings["metadata"]["name"]}, "a changed setting rolls the pods"
    assert settings["metadata"]["name"] != "onsale"


@pytest.mark.parametrize("folder", [BASE, *(KUBERNETES / "overlays" / name for name in OVERLAYS)], ids=lambda f: f.name)
def test_kustomizations_are_as_old_and_new_programs_read_them(folder: Path) -> None:
    told = kustomization(folder)
    assert not set(told) & {"patches", "replicas", "components", "replacements", "labels"}
    named = [*told["resources"], *told.get("patchesStrategicMerge", [])]
    assert all((folder / name).exists() for name in named)
    files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == {name for name in named if "/" not in name}, "every file is used"
    ours = {one["metadata"]["name"] for one in documents(BASE)}
    for patch in told.get("patchesStrategicMerge", []):
        assert {one["metadata"]["name"] for one in yaml.safe_load_all((folder / patch).read_text())} <= ours


@pytest.mark.parametrize(("name", "pod"), PODS, ids=[name for name, _ in PODS])
def test_a_pod_may_do_nothing_it_need_not(name: str, pod: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False, "Kubernetes' own QUEUE_PORT would be taken for ours"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*pod["containers"], *pod.get("initContainers", [])):
        allowed = container["securityContext"]
        assert (allowed["readOnlyRootFilesystem"], allowed["allowPrivilegeEscalation"]) == (True, False)
        assert allowed["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"]["cpu"]


def test_every_service_is_probed_kept_scaled_and_spread() -> None:
    objects = list(documents(BASE))
    for kind in ("Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"):
        assert {one["metadata"]["name"] for one in objects if one["kind"] == kind} == {*SERVICES, "balancer"}
    for one in (one for one in objects if one["kind"] == "Deployment"):
        assert "replicas" not in one["spec"], "applied again in a rush, it would undo what the autoscaler did"
        [container] = one["spec"]["template"]["spec"]["containers"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
        assert one["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_autoscalers_look_at_metrics_that_exist() -> None:
    for module in ("shared.runtime.metrics", *(f"services.{service}.metrics" for service in SERVICES)):
        importlib.import_module(module)
    there = {sample.name for family in REGISTRY.collect() for sample in family.samples} | {
        f.name for f in REGISTRY.collect()
    }
    there |= {f"{family.name}_bucket" for family in REGISTRY.collect() if family.type == "histogram"}
    [rules] = [yaml.safe_load(one["data"]["config.yaml"]) for one in documents(KUBERNETES / "metrics")]
    made = {"Pods": rules["rules"], "External": rules["externalRules"]}
    for rule in (*rules["rules"], *rules["externalRules"]):
        assert rule["seriesQuery"].partition("{")[0] in there
    asked = {
        (metric["type"], metric[metric["type"].lower()]["metric"]["name"])
        for one in documents(BASE) if one["kind"] == "HorizontalPodAutoscaler"
        for metric in one["spec"]["metrics"] if metric["type"] != "Resource"
    }  # fmt: skip
    assert asked == {(kind, rule["name"]["as"]) for kind, those in made.items() for rule in those}


def test_network_policies_name_parts_and_ports_that_are_there() -> None:
    parts = {
        one["spec"]["template"]["metadata"]["labels"]["part"]
        for one in documents(BASE)
        if "template" in one.get("spec", {})
    }
    parts |= {"backup", "snapshot"}
    text = (BASE / "network.yaml").read_text()
    for listed in re.findall(r"values: \[([^\]]*)\]", text):
        assert set(listed.split(", ")) <= parts
    assert set(re.findall(r"part: (\w+)", text)) <= parts
    assert {int(port) for port in re.findall(r"port: (\d+)", text)} == {53, 443, 465, 587, 5432, 6379, 8000, 8080, 9000}


def test_compose_fits_its_schema_and_reads_files_that_are_there() -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    command: list[str | Path] = [program, "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    told = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for one in told["services"].values():
        for volume in one.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./secrets"):
                continue
            assert (DEPLOY / source).is_file() if source.startswith("./") else source in told["volumes"]
        assert set(one.get("networks", [])) <= set(told["networks"])
        assert set(one.get("depends_on", {})) <= set(told["services"])
