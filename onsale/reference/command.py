"""`onsale reference`: the pages of docs/ that are written from the code, and the index of the decisions.

`make api-documents` writes them; a test fails when one differs from the code.
"""

from pathlib import Path
from typing import Annotated

import typer

from onsale.imports import import_module

PAGES = {
    "reference/settings.md": "onsale.reference.settings:settings_page",
    "reference/cli.md": "onsale.reference.commands:commands_page",
    "reference/openapi.md": "onsale.reference.endpoints:endpoints_page",
    "reference/problems.md": "onsale.reference.endpoints:problems_page",
    "reference/events.md": "onsale.reference.events:events_page",
    "reference/frames.md": "onsale.reference.frames:frames_page",
    "reference/metrics.md": "onsale.reference.monitoring:metrics_page",
    "reference/alarms.md": "onsale.reference.monitoring:alarms_page",
    "reference/redis-keys.md": "onsale.reference.redis_keys:redis_keys_page",
    "reference/tables.md": "onsale.reference.tables:tables_page",
    "operate/runbook.md": "onsale.deploy.monitoring_files:runbook",
    "decisions/index.md": "onsale.reference.decisions:index_page",
}


def written(name: str) -> str:
    """What a page should say."""
    module, _, function = PAGES[name].partition(":")
    text: str = getattr(import_module(module), function)()
    return text


def reference(
    folder: Annotated[Path, typer.Argument(help="The folder docs of a checkout.", exists=True, file_okay=False)],
) -> None:
    """Write the pages of docs/ that come from the code: settings, API, problems, events, metrics, tables and others."""
    for name in PAGES:
        (folder / name).write_text(written(name), encoding="utf-8")
