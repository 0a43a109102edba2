"""Changes event files and backups in every way. Each is read as what it says, or refused by a sentence; a backup that
was changed is never restored, in whole or in part.
"""

import itertools
import json
import shutil
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import yaml

from onsale import event_files
from onsale.backup.create import DATABASE_ERRORS, take_backup
from onsale.backup.manifest import MANIFEST, BadBackup
from onsale.backup.restore import load_databases, read_manifest, require_empty_databases
from onsale.errors import OperatorError
from onsale.local.engines import Engines
from proof.bad_input.generated.variations import with_bad_value
from proof.bad_input.sale import Findings
from tests.onsale.backup_rows import SERVICES, all_rows, empty_database

EXAMPLES = ("arena.yaml", "flash.yaml")
YAML_PIECES = (
    "&a [*a]", "*a", "!!python/object:os.system {}", "!!binary x", "? a\n: b\n", "<<: {a: b}\n", "\t", "\x00", "~",
    "%YAML 9.9\n", "---\n", "2030-01-01", "1e400", ".nan", "0o7", "1:30", "- " * 200, "{" * 300, "\ufeff",
    "a: &x [1]\nb: [*x, *x]\n",
    "!!set {a}", "!!timestamp 2030-99-99", "2030-13-45", "0001-01-01 00:00:00 -25", "1_0", "0x" + "f" * 400,
    " #1 ", " # ", "010", "NO", "name: x\n", "price_minor: 10, ", "[A, A]", "odd from the right",
)  # fmt: skip


def changed_text(text: bytes, random: Random) -> bytes:
    """An event file with bytes or lines changed, or with one value replaced."""
    kind = random.randrange(5)
    if kind == 0:
        at = random.randrange(len(text))
        return text[:at] + bytes([random.randrange(256)]) + text[at + random.choice((0, 1, 9)) :]
    if kind == 1:
        lines = text.split(b"\n")
        lines[random.randrange(len(lines))] = random.choice(lines)
        return b"\n".join(lines)
    if kind == 2:
        return text[: random.randrange(len(text))]
    if kind == 3:
        at = random.randrange(len(text))
        return text[:at] + random.choice(YAML_PIECES).encode() + text[at:]
    return with_bad_value(json.dumps(yaml.safe_load(text), default=str).encode(), random)


def check_event_files(found: Findings, folder: Path, random: Random, count: int) -> None:
    """Reads so many changed event files."""
    originals = [Path(event_files.__file__).parent.joinpath("examples", name).read_bytes() for name in EXAMPLES]
    path = folder / "event.yaml"
    for _ in range(count):
        text = changed_text(random.choice(originals), random)
        path.write_bytes(text)
        found.count("mutated files")
        _expect_refusal(found, "event files", lambda: event_files.write(event_files.read(path)), text)


def _expect_refusal(found: Findings, where: str, action: Callable[[], Any], example: bytes) -> None:
    """The action succeeds, or says by `OperatorError` why not."""
    try:
        action()
    except OperatorError as refused:
        if not str(refused).strip():
            found.add(where, "refused without a reason", repr(example[:1_000]))
    except Exception as broken:  # noqa: BLE001 - any other is a fault
        at = traceback.extract_tb(broken.__traceback__)[-1]
        found.add(where, f"{type(broken).__name__} in {at.name}", f"{broken} {example[:1_500]!r}")


def damages(backup: Path, random: Random) -> Iterator[tuple[str, Callable[[Path], Any]]]:
    """Names of damages and what does them to a copy of this backup; none may be restored."""
    files = [path.relative_to(backup) for path in backup.rglob("*") if path.is_file() and path.name != MANIFEST]
    changes: dict[str, Callable[[Path], Any]] = {
        "is missing": Path.unlink,
        "is cut": lambda path: _rewrite(path, lambda data: data[: len(data) // 2]),
        "is empty": lambda path: _rewrite(path, lambda data: b"" if data else b"x"),
        "is larger": lambda path: _rewrite(path, lambda data: data + b"\x00" * 100_000),
        "has another bit": lambda path: _rewrite(path, lambda data: _bit_flipped(data, random)),
        "is a folder": _as_folder,
    }
    for file, (name, change) in itertools.product(files, changes.items()):
        yield f"{file} {name}", partial(_change_in, change=change, file=file)
    first, second = random.sample(files, 2)
    if (backup / first).read_bytes() != (backup / second).read_bytes():
        yield f"{first} and {second} swapped", lambda copy: _swap(copy / first, copy / second)
    yield "the manifest is missing", lambda copy: (copy / MANIFEST).unlink()
    yield "the manifest is cut", lambda copy: _rewrite(copy / MANIFEST, lambda data: data[: len(data) // 2])
    yield "the manifest is not text", lambda copy: _rewrite(copy / MANIFEST, lambda data: b"\xff" + data)
    yield "the manifest is huge", lambda copy: _rewrite(copy / MANIFEST, lambda data: data + b" " * 5_000_000)
    for path in ("../x", "/etc/passwd", "a/../../x", "a/b/c", "\x00"):
        yield f"a file of the manifest is {path!r}", partial(_set_file, name=path)


async def check_backups(found: Findings, folder: Path, engines: Engines, random: Random, loads: int) -> None:
    """Damages copies of a backup of these databases, and loads `loads` of those whose manifest alone was changed."""
    urls = dict.fromkeys(SERVICES, engines.postgres_url)
    backup = await take_backup(urls, {}, folder, report=lambda line: None)
    for name, damage in damages(backup, random):
        copy = _copy(backup, folder)
        damage(copy)
        found.count("mutated files")
        _expect_refusal(found, "backups", lambda copy=copy: read_manifest(copy), name.encode())  # type: ignore[misc]
        try:
            read_manifest(copy)
            found.add("backups", "a damaged backup would be restored", name)
        except Exception:  # noqa: BLE001 - which one it was is checked above
            pass
    original = (backup / MANIFEST).read_bytes()
    rows = await all_rows(engines.postgres_url)
    for _ in range(loads):
        copy = _copy(backup, folder)
        changed = with_bad_value(original, random)
        (copy / MANIFEST).write_bytes(changed)
        found.count("mutated files")
        await _load(found, copy, engines, rows, changed)


async def _load(found: Findings, copy: Path, engines: Engines, rows: dict[str, list[str]], changed: bytes) -> None:
    """What is restored although the manifest was changed is what was backed up, or nothing."""
    try:
        manifest = read_manifest(copy)
    except OperatorError:
        return
    except Exception as broken:  # noqa: BLE001
        found.add("backups", f"{type(broken).__name__} for a changed manifest", f"{broken} {changed[:1_500]!r}")
        return
    async with empty_database(engines) as url:
        urls = dict.fromkeys(SERVICES, url)
        try:
            await require_empty_databases(urls, None)
            await load_databases(manifest, copy, urls, report=lambda line: None)
        except (BadBackup, *DATABASE_ERRORS):
            left = (await all_rows(url)).items()
            if any(found_rows == rows[table] for table, found_rows in left if found_rows and "version" not in table):
                found.add("backups", "a refused backup has left rows", repr(changed[:1_500]))
        except Exception as broken:  # noqa: BLE001
            found.add("backups", f"{type(broken).__name__} while loading", f"{broken} {changed[:1_500]!r}")


def _copy(backup: Path, folder: Path) -> Path:
    copy = folder / "damaged"
    shutil.rmtree(copy, ignore_errors=True)
    return Path(shutil.copytree(backup, copy))


def _rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def _bit_flipped(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _swap(first: Path, second: Path) -> None:
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)


def _change_in(copy: Path, *, change: Callable[[Path], Any], file: Path) -> None:
    change(copy / file)


def _set_file(copy: Path, *, name: str) -> None:
    path = copy / MANIFEST
    manifest = json.loads(path.read_bytes())
    manifest["schemas"][0]["tables"][0]["file"] = name
    path.write_text(json.dumps(manifest))
