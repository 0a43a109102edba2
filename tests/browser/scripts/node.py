"""Node, which runs the scripts of the pages without a browser."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WEB = Path(__file__).parents[3] / "web"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")
# Reads a line with modules, then lines with a function's source and what to call it with; answers a line each.
EVALUATOR = """
const lines = (await import("node:readline")).createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const next = async () => JSON.parse((await lines.next()).value);
globalThis.document = { hidden: false };
globalThis.scripts = Object.assign({}, ...(await Promise.all((await next()).map((script) => import(script)))));
for (;;) {
  const line = (await lines.next()).value;
  if (line === undefined) break;
  const { source, given } = JSON.parse(line);
  console.log(JSON.stringify(await (0, eval)(source)(given)));
}
process.exit(); // timers of the scripts need not end
"""


class Scripts:
    """Modules of the pages in a process of node, as the global `scripts`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def load(self, *names: str) -> None:
        self._tell([str(WEB / "fans" / name) for name in names])

    def evaluate(self, source: str, given: Any) -> Any:
        """What the function answers: numbers, texts, lists and objects of these."""
        self._tell({"source": source, "given": given})
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the script failed; node says why"
        return json.loads(line)

    def _tell(self, told: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()


@contextmanager
def scripts(*names: str) -> Iterator[Scripts]:
    assert NODE
    command = [NODE, "--input-type=module", "--eval", EVALUATOR]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        running = Scripts(process)
        running.load(*names)
        yield running
        assert process.stdin
        process.stdin.close()
