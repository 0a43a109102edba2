"""`onsale deploy-config`: its files are those in `deploy/`, nginx and HAProxy accept them, and options change them."""

import subprocess
from pathlib import Path

import pytest

from onsale.deploy.balancer_files import haproxy_cfg, nginx_conf
from onsale.deploy.balancers import Plan
from tests.support.running.program import Command
from tests.support.running.serving import self_signed
from tests.support.running.suite import Kind, balancer_parameters, command, on_free_ports

DEPLOY = Path(__file__).parents[3] / "deploy"


def test_the_files_in_deploy_are_the_generated_ones() -> None:
    assert (DEPLOY / "nginx.conf").read_text() == nginx_conf()
    assert (DEPLOY / "haproxy.cfg").read_text() == haproxy_cfg()


@pytest.mark.parametrize("kind", balancer_parameters())
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
def test_nginx_and_haproxy_accept_their_file(kind: Kind, with_tls: bool, tmp_path: Path) -> None:
    plan = on_free_ports(Plan(certificate=str(self_signed(tmp_path)), trusted=("10.0.0.0/8",)) if with_tls else Plan())
    check = "-t" if kind == "nginx" else "-c"
    result = subprocess.run([*command(kind, plan, tmp_path), check], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "warning" not in result.stderr.lower(), result.stderr


def test_options_set_the_processes_and_the_trusted_networks(onsale: Command, tmp_path: Path) -> None:
    options = ["--folder", str(tmp_path), "--process", "gateway=gateway:8101", "--trust", "192.0.2.0/24"]
    options += ["--process", "queue=10.0.0.7:8102/8202", "--process", "queue=10.0.0.8:8102/8202"]
    result = onsale("deploy-config", *options, "--inside-host", "10.0.0.1", "--operators", "10.9.0.0/16")
    assert result.returncode == 0, result.stderr
    nginx, haproxy = (tmp_path / "nginx.conf").read_text(), (tmp_path / "haproxy.cfg").read_text()
    for text in (nginx, haproxy):
        for address in (
            "gateway:8101",
            "10.0.0.8:8102",
            "10.0.0.8:8202",
            "192.0.2.0/24",
            "10.0.0.1:8302",
            "10.9.0.0/16",
        ):
            assert address in text
        assert "10.0.0.0/8" not in text


@pytest.mark.parametrize(
    "options",
    [
        ["--process", "till=10.0.0.7:8102"], ["--process", "queue=10.0.0.7:8102"], ["--process", "gateway=10.0.0.7"],
        ["--process", "gateway=x; }:80"], ["--certificate", "/tls/site.pem"], ["--trust", "everybody"],
        ["--operators", "10.0.0.0/33"], ["--listen", "80; }"],
    ],
)  # fmt: skip
def test_invalid_options_are_refused_and_no_file_is_written(
    onsale: Command, options: list[str], tmp_path: Path
) -> None:
    result = onsale("deploy-config", "--folder", str(tmp_path), *options)
    assert result.returncode == 2
    assert result.stderr.startswith("onsale: ")
    assert not list(tmp_path.iterdir())
