"""Takes a guard out in a copy of the tree and runs the test that claims to notice it.

The copy is outside the checkout, so nothing in the checkout changes, whatever happens. A test that fails because the
changed code cannot be imported or run at all has noticed nothing: only a failed assertion counts.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proof.guards.guard import ROOT, Guard, node_id
from tests.support.engines.engines import fast_directory

PYTEST = (sys.executable, "-P", "-m", "pytest", "-q", "-m", "", "-p", "no:schemathesis", "-p", "proof.guards.report")
MAKE_CLIENTS = (sys.executable, "-P", "-m", "tools.clients")
GUARD_TIMEOUT_S, BASELINE_TIMEOUT_S = 400, 3000
LINKED = (".venv", "web/node_modules")
PAGES = ("features/pages/dist", "features/console/pages/dist")


@dataclass(frozen=True)
class Run:
    """How a run of pytest ended: the tests that passed, that noticed something (`red`), and those that failed because
    something did not run at all, with the reason.
    """

    passed: Sequence[str] = ()
    red: Sequence[str] = ()
    broken: Sequence[tuple[str, str]] = ()
    said: str = ""

    @property
    def verdict(self) -> str:
        """One word or a short reason: `red` is what is wanted."""
        if self.red:
            return "red"
        if self.broken:
            return "broken: " + ", ".join(sorted({reason for _, reason in self.broken}))
        return "green" if self.passed else f"no result: {self.said.strip()[-200:]}"


@dataclass
class Tree:
    """A copy of the checkout, in which one guard at a time is out."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    def pytest(self, nodes: Sequence[str], *options: str, timeout_s: float) -> Run:
        report = self.folder.parent / f"{self.folder.name}.json"
        report.unlink(missing_ok=True)
        environ = {**os.environ, "PYTHONPATH": str(self.folder), "ONSALE_GUARD_REPORT": str(report)}
        said = _run([*PYTEST, *options, *nodes], self.folder, environ, timeout_s)
        if not report.exists():
            return Run(said=said)
        found = json.loads(report.read_text())
        return Run(found["passed"], found["red"], [(test, reason) for test, reason in found["broken"]], said)

    @contextmanager
    def without(self, guard: Guard) -> Iterator[None]:
        file = self.folder / guard.path
        text = file.read_text()
        assert text.count(guard.old) == 1, f"{guard.path} does not have the text of its guard once: {guard.old}"
        file.write_text(text.replace(guard.old, guard.new))
        try:
            self._build_pages(guard)
            yield
        finally:
            shutil.copy2(ROOT / guard.path, file)
            if guard.path.startswith("web/"):
                for pages in PAGES:
                    shutil.rmtree(self.folder / pages)
                    shutil.copytree(ROOT / pages, self.folder / pages)

    def _build_pages(self, guard: Guard) -> None:
        if guard.path.startswith("web/"):
            subprocess.run(["node", "build.mjs"], cwd=self.folder / "web", check=True, capture_output=True)


@contextmanager
def copied_tree() -> Iterator[Tree]:
    """The files that git knows or would add, as they are now, and the clients' parts, which git does not know."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    with tempfile.TemporaryDirectory(prefix="onsale-guards-", dir=fast_directory()) as parent:
        folder = Path(parent) / "tree"
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        for name in LINKED:
            if (ROOT / name).exists():
                (folder / name).symlink_to((ROOT / name).resolve())
        subprocess.run(MAKE_CLIENTS, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, check=True)
        yield Tree(folder)


def take_out(guard: Guard, tree: Tree) -> Run:
    """Runs the guard's test without the guard, the usual case before those that the test itself weakens."""
    try:
        with tree.without(guard):
            return tree.pytest([node_id(guard.test)], "-p", "no:randomly", "--maxfail=2", timeout_s=GUARD_TIMEOUT_S)
    except subprocess.CalledProcessError:
        return Run(broken=[(guard.test, "the pages cannot be built")])


def baseline(nodes: Sequence[str], tree: Tree) -> Run:
    """Runs the tests with every guard in place: what fails here says nothing about a guard."""
    return tree.pytest(nodes, timeout_s=BASELINE_TIMEOUT_S)


def _run(command: Sequence[str], cwd: Path, environ: dict[str, str], timeout_s: float) -> str:
    """What the command said. It ends with all its children, at the latest after `timeout_s`."""
    process = subprocess.Popen(
        command, cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        return process.communicate(timeout=timeout_s)[0]
    except subprocess.TimeoutExpired:
        return f"did not end within {timeout_s:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
