"""A committed migration never changes again: databases that ran it would keep other tables than new ones get."""

import hashlib
from pathlib import Path

from shared.postgres.migrations import _first_scripts, _scripts
from shared.postgres.schema_version import migrations_folder
from shared.routes import SERVICES_WITH_TABLES

HASHES = Path(__file__).parent / "migrations.sha256"
ROOT = Path(__file__).parents[3]


def test_a_committed_migration_never_changes() -> None:
    """The file of hashes names each. After `sha256sum services/*/migrations/versions/*.*` a new one is added there.

    The first of orders changed once, on purpose: it installed a job queue by a library that is gone since 0007, which
    drops it where it was installed. Both ways lead to the same tables.
    """
    found = {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()
        for service in SERVICES_WITH_TABLES
        for path in (migrations_folder(service) / "versions").glob("*.*")
    }
    for service in SERVICES_WITH_TABLES:  # libraries write a part of it
        scripts = "\n".join(_first_scripts(service))
        assert _scripts.get(None) is None, "what comes afterwards is run, not collected"
        found[f"{service}, first"] = hashlib.sha256(scripts.encode()).hexdigest()
    kept = {name: digest for digest, _, name in (line.partition("  ") for line in HASHES.read_text().splitlines())}
    changed = sorted(name for name in found.keys() & kept.keys() if found[name] != kept[name])
    assert not changed, "undo this, and write the change as a new migration"
    assert found == kept
