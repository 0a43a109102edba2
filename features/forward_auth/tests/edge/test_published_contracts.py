"""The edge gates against what the platforms publish: their types, Fastly's compiler and its JavaScript engine."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from features.forward_auth.tests.edge.npm_packages import installed
from shared.security.tokens import b64, development_keys
from tests.gateway.tokens import signed_pass
from tests.support.programs import need, needs

EDGE = Path(__file__).parents[4] / "deploy" / "edge"
COMPILER = "@fastly/js-compute/dist/cli/js-compute-runtime-cli.js"
pytestmark = [needs("node", "npm"), pytest.mark.proof, pytest.mark.timeout(600)]

SELF_TEST = """
import { verify } from %(module)s;
const plain = (text) => atob(text.replaceAll("-", "+").replaceAll("_", "/"));
const bytes = (text) => Uint8Array.from(plain(text), (char) => char.charCodeAt(0));
const [header, claims, signature] = %(good)s.split(".");
const signed = (text) => new TextEncoder().encode(text);
const key = bytes(%(key)s);
const began = Date.now();
const valid = await verify(key, bytes(signature), signed(`${header}.${claims}`));
const took = Date.now() - began;
const changed = await verify(key, bytes(signature), signed(`${header}.${claims}x`));
const foreign = await verify(key, bytes(%(foreign)s.split(".")[2]), signed(`${header}.${claims}`));
console.log("self-test", JSON.stringify({ valid, changed, foreign, took }));
addEventListener("fetch", (event) => event.respondWith(new Response()));
"""


def run(folder: Path, program: str, *arguments: str | Path) -> str:
    ran = subprocess.run(
        [need("node"), folder / "node_modules" / program, *arguments],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("program", "types"),
    [("cloudflare-worker.js", "@cloudflare/workers-types"), ("fastly-compute.js", "@fastly/js-compute")],
)
def test_the_program_fits_the_types_of_its_platform(program: str, types: str, tmp_path: Path) -> None:
    folder = installed()
    options = {
        "allowJs": True, "checkJs": True, "noEmit": True, "strict": True, "noImplicitAny": False, "target": "es2022",
        "module": "esnext", "moduleResolution": "bundler", "skipLibCheck": True, "lib": ["es2022"], "types": [types],
        "typeRoots": [str(folder / "node_modules")],
    }  # fmt: skip
    config = tmp_path / "tsconfig.json"
    config.write_text(json.dumps({"compilerOptions": options, "files": [str(EDGE / program)]}))
    run(folder, "typescript/bin/tsc", "-p", config)


def test_fastlys_compiler_makes_a_program_of_it(tmp_path: Path) -> None:
    wasm = tmp_path / "main.wasm"
    run(installed(), COMPILER, EDGE / "fastly-compute.js", wasm)
    assert wasm.read_bytes().startswith(b"\0asm")


def test_fastlys_engine_verifies_passes_as_openssl_does(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The compiler runs the program's first lines in the engine that the edge runs: there the signature is verified."""
    [key] = development_keys("pass").public().keys.values()
    expires_at_s = int(time.time()) + 60
    words = {
        "module": str(EDGE / "ed25519.js"), "good": signed_pass(expires_at_s=expires_at_s), "key": b64(key),
        "foreign": signed_pass(keys="another", expires_at_s=expires_at_s),
    }  # fmt: skip
    script = tmp_path / "self-test.js"
    script.write_text(SELF_TEST % {name: json.dumps(word) for name, word in words.items()})
    option = "--enable-experimental-top-level-await"
    output = run(installed(), COMPILER, option, script, tmp_path / "self-test.wasm")
    [line] = [line for line in output.splitlines() if "self-test {" in line]
    found = json.loads(line.partition("self-test ")[2])
    record_property("ms_a_signature", found["took"])
    assert (found["valid"], found["changed"], found["foreign"]) == (True, False, False)
