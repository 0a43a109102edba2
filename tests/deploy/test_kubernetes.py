"""Kubernetes manifests and compose.yaml fit their schemas, pods are hardened, autoscalers use metrics that exist."""

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
from tests.deploy.manifests import BASE, DEPLOY, KUBERNETES, OVERLAYS, kubernetes_objects, kustomization, pods

VERSION = "1.33"
SMALL = KUBERNETES / "overlays" / "small"
PODS = [*pods(kubernetes_objects(BASE)), *pods(kubernetes_objects(SMALL))]
KUSTOMIZE = shutil.which("kubectl")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each overlay as kustomize builds it; skips the test without kubectl."""
    if KUSTOMIZE is None:
        pytest.skip("needs kubectl, for kustomize")
    files = {overlay: tmp_path_factory.mktemp("built") / f"{overlay}.yaml" for overlay in OVERLAYS}
    for overlay, file in files.items():
        command: list[str | Path] = [KUSTOMIZE, "kustomize", KUBERNETES / "overlays" / overlay]
        file.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return files


def test_every_kubernetes_object_fits_its_schema(request: pytest.FixtureRequest) -> None:
    """Checks the built overlays with kubectl, the files without."""
    files = [*BASE.glob("[!k]*.yaml"), SMALL / "databases.yaml", KUBERNETES / "metrics" / "adapter.yaml"]
    paths = list(request.getfixturevalue("built").values()) if KUSTOMIZE else files
    program = Path(sys.executable).with_name("kubernetes-validate")
    command: list[str | Path] = [program, "--strict", "-k", VERSION, *paths]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_pins_image_versions_and_mounts_its_own_settings(overlay: str, built: dict[str, Path]) -> None:
    objects = list(yaml.safe_load_all(built[overlay].read_text()))
    containers = [container for _, pod in pods(iter(objects)) for container in pod["containers"]]
    assert all(re.search(r":\d[\w.-]*$", container["image"]) for container in containers)
    [settings] = [one for one in objects if one["kind"] == "ConfigMap"]
    mounted = {c["envFrom"][0]["configMapRef"]["name"] for c in containers if "envFrom" in c}
    assert mounted == {settings["metadata"]["name"]}, "a changed setting must restart the pods"
    assert settings["metadata"]["name"] != "onsale"


@pytest.mark.parametrize("folder", [BASE, *(KUBERNETES / "overlays" / name for name in OVERLAYS)], ids=lambda f: f.name)
def test_kustomizations_use_only_fields_that_old_and_new_kubectl_read(folder: Path) -> None:
    fields = kustomization(folder)
    assert not set(fields) & {"patches", "replicas", "components", "replacements", "labels"}
    named = [*fields["resources"], *fields.get("patchesStrategicMerge", [])]
    assert all((folder / name).exists() for name in named)
    files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == {name for name in named if "/" not in name}, "a file is not used"
    names = {one["metadata"]["name"] for one in kubernetes_objects(BASE)}
    for patch in fields.get("patchesStrategicMerge", []):
        assert {one["metadata"]["name"] for one in yaml.safe_load_all((folder / patch).read_text())} <= names


@pytest.mark.parametrize(("name", "pod"), PODS, ids=[name for name, _ in PODS])
def test_a_pod_has_no_privilege_it_does_not_need(name: str, pod: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False, "the service reads QUEUE_PORT, which Kubernetes would set"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*pod["containers"], *pod.get("initContainers", [])):
        security = container["securityContext"]
        assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"]["cpu"]


def test_every_service_has_probes_a_disruption_budget_and_an_autoscaler() -> None:
    objects = list(kubernetes_objects(BASE))
    for kind in ("Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"):
        assert {one["metadata"]["name"] for one in objects if one["kind"] == kind} == {*SERVICES, "balancer"}
    for one in (one for one in objects if one["kind"] == "Deployment"):
        assert "replicas" not in one["spec"], "applying the file again would undo the autoscaler"
        [container] = one["spec"]["template"]["spec"]["containers"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
        assert one["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_autoscalers_use_metrics_that_exist() -> None:
    for module in ("shared.runtime.metrics", *(f"services.{service}.metrics" for service in SERVICES)):
        importlib.import_module(module)
    exported = {sample.name for family in REGISTRY.collect() for sample in family.samples} | {
        f.name for f in REGISTRY.collect()
    }
    exported |= {f"{family.name}_bucket" for family in REGISTRY.collect() if family.type == "histogram"}
    [rules] = [yaml.safe_load(one["data"]["config.yaml"]) for one in kubernetes_objects(KUBERNETES / "metrics")]
    served = {"Pods": rules["rules"], "External": rules["externalRules"]}
    for rule in (*rules["rules"], *rules["externalRules"]):
        assert rule["seriesQuery"].partition("{")[0] in exported
    used = {
        (metric["type"], metric[metric["type"].lower()]["metric"]["name"])
        for one in kubernetes_objects(BASE) if one["kind"] == "HorizontalPodAutoscaler"
        for metric in one["spec"]["metrics"] if metric["type"] != "Resource"
    }  # fmt: skip
    assert used == {(kind, rule["name"]["as"]) for kind, rules_of_kind in served.items() for rule in rules_of_kind}


def test_network_policies_name_parts_and_ports_that_exist() -> None:
    parts = {
        one["spec"]["template"]["metadata"]["labels"]["part"]
        for one in kubernetes_objects(BASE)
        if "template" in one.get("spec", {})
    }
    parts |= {"backup", "snapshot"}
    text = (BASE / "network.yaml").read_text()
    for listed in re.findall(r"values: \[([^\]]*)\]", text):
        assert set(listed.split(", ")) <= parts
    assert set(re.findall(r"part: (\w+)", text)) <= parts
    assert {int(port) for port in re.findall(r"port: (\d+)", text)} == {53, 443, 465, 587, 5432, 6379, 8000, 8080, 9000}


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
