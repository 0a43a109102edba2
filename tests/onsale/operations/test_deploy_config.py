"""What `onsale deploy-config` writes stands in `deploy/`, is accepted by both programs, and follows its options."""

import subprocess
from pathlib import Path

import pytest

from onsale.deploy.balancers import Plan
from onsale.deploy.haproxy import haproxy_cfg
from onsale.deploy.nginx import nginx_conf
from tests.support.running.balancers import Kind, command, elsewhere, parameters
from tests.support.running.certificates import self_signed
from tests.support.running.command_line import Command

DEPLOY = Path(__file__).parents[3] / "deploy"


def test_the_files_in_deploy_are_the_generated_ones() -> None:
    assert (DEPLOY / "nginx.conf").read_text() == nginx_conf()
    assert (DEPLOY / "haproxy.cfg").read_text() == haproxy_cfg()


@pytest.mark.parametrize("kind", parameters())
@pytest.mark.parametrize("safe", [False, True], ids=["plain", "tls"])
def test_the_program_accepts_it(kind: Kind, safe: bool, tmp_path: Path) -> None:
    plan = elsewhere(Plan(certificate=str(self_signed(tmp_path)), trusted=("10.0.0.0/8",)) if safe else Plan())
    check = "-t" if kind == "nginx" else "-c"
    asked = subprocess.run([*command(kind, plan, tmp_path), check], capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    assert "warning" not in asked.stderr.lower(), asked.stderr


def test_options_say_where_processes_are_and_whom_to_trust(onsale: Command, tmp_path: Path) -> None:
    options = ["--folder", str(tmp_path), "--process", "gateway=gateway:8101", "--trust", "192.0.2.0/24"]
    options += ["--process", "queue=10.0.0.7:8102/8202", "--process", "queue=10.0.0.8:8102/8202"]
    done = onsale("deploy-config", *options, "--inside-host", "10.0.0.1", "--operators", "10.9.0.0/16")
    assert done.returncode == 0, done.stderr
    nginx, haproxy = (tmp_path / "nginx.conf").read_text(), (tmp_path / "haproxy.cfg").read_text()
    for text in (nginx, haproxy):
        for told in ("gateway:8101", "10.0.0.8:8102", "10.0.0.8:8202", "192.0.2.0/24", "10.0.0.1:8302", "10.9.0.0/16"):
            assert told in text
        assert "10.0.0.0/8" not in text


@pytest.mark.parametrize(
    "options",
    [
        ["--process", "till=10.0.0.7:8102"], ["--process", "queue=10.0.0.7:8102"], ["--process", "gateway=10.0.0.7"],
        ["--process", "gateway=x; }:80"], ["--certificate", "/tls/site.pem"], ["--trust", "everybody"],
        ["--operators", "10.0.0.0/33"], ["--listen", "80; }"],
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused_and_nothing_is_written(
    onsale: Command, options: list[str], tmp_path: Path
) -> None:
    done = onsale("deploy-config", "--folder", str(tmp_path), *options)
    assert done.returncode == 2
    assert done.stderr.startswith("onsale: ")
    assert not list(tmp_path.iterdir())
