"""The pages of docs/ that are written from the code, and the index of the decisions.

`make api-documents` writes them; a test fails when one differs from the code.
"""

from importlib import import_module
from pathlib import Path

PAGES = {
    "reference/settings.md": "tools.reference.settings:settings_page",
    "reference/cli.md": "tools.reference.commands:commands_page",
    "reference/openapi.md": "tools.reference.endpoints:endpoints_page",
    "reference/problems.md": "tools.reference.endpoints:problems_page",
    "reference/events.md": "tools.reference.events:events_page",
    "reference/frames.md": "tools.reference.frames:frames_page",
    "reference/metrics.md": "tools.reference.monitoring:metrics_page",
    "reference/alarms.md": "tools.reference.monitoring:alarms_page",
    "reference/redis-keys.md": "tools.reference.redis_keys:redis_keys_page",
    "reference/tables.md": "tools.reference.tables:tables_page",
    "operate/runbook.md": "tools.reference.monitoring:runbook",
    "decisions/index.md": "tools.reference.decisions:index_page",
}


def written(name: str) -> str:
    """What a page should say."""
    module, _, function = PAGES[name].partition(":")
    text: str = getattr(import_module(module), function)()
    return text


def write(folder: Path) -> None:
    """Writes every page below this folder."""
    for name in PAGES:
        (folder / name).write_text(written(name), encoding="utf-8")
