"""What MkDocs is told about the folder docs/: the order of its pages, links that leave it, a decision's status.

Pages that no list names come after the others, so a new page is always in the navigation.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

DOCS = Path(__file__).parents[1]
SECTIONS: dict[str, tuple[str, ...]] = {
    "start": ("tour", "first-event", "api-by-example"),
    "use": (
        "fan-pages", "admission-rate", "lanes", "lottery", "bot-protection", "forward-auth", "edge-gates",
        "beside-a-shop", "signed-in-users", "hall", "stock", "accessible-places", "hold-times", "prices", "price-types",
        "checkout", "payment-providers", "refunds", "tickets", "mail", "reports", "brand", "embedding", "languages",
        "live-updates", "webhooks", "client-libraries",
    ),
    "operate": (
        "checklist", "deploy", "capacity", "tune", "backup", "keys", "runbook", "upgrade", "console", "doctor",
        "monitoring", "reconcile", "balancers", "databases", "redis", "event-log", "streams", "chaos",
    ),
    "reference": (
        "settings", "cli", "openapi", "problems", "events", "frames", "metrics", "alarms", "redis-keys", "tables",
        "limits", "recovery", "glossary", "licences",
    ),
    "develop": ("features", "guards"),
    "explain": ("architecture", "journey", "models", "speed", "benchmarks"),
}  # fmt: skip
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\.?/[^)#\s]+)(#[^)]*)?\)")


def title(page: Path) -> str:
    """The first heading."""
    heading = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.M)
    assert heading, f"{page} has no title"
    return heading[1].replace("`", "")


def short_title(page: Path) -> str:
    """The title up to its colon: short enough for a list."""
    return title(page).partition(": ")[0]


def navigation() -> list[dict[str, Any]]:
    """Every page of docs/, in sections; the decisions are under Explain."""
    found: list[dict[str, Any]] = [{"Onsale": "index.md"}]
    for folder, order in SECTIONS.items():
        listed = {stem: number for number, stem in enumerate(order)}
        pages = sorted((DOCS / folder).glob("*.md"), key=lambda page: (listed.get(page.stem, len(listed)), page.stem))
        entries: list[Any] = [{short_title(page): f"{folder}/{page.name}"} for page in pages]
        if folder == "explain":
            entries.append({"Decisions": _decisions()})
        if entries:
            found.append({folder.capitalize(): entries})
    return found


def _decisions() -> list[Any]:
    records = sorted((DOCS / "decisions").glob("0*.md"))
    return ["decisions/index.md", *({title(page): f"decisions/{page.name}"} for page in records)]


def on_config(config: Any) -> Any:
    """MkDocs calls it first."""
    config["nav"] = navigation()
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """A link to a file of the repository that the site does not have, such as an example's, becomes its path."""

    def replaced(link: re.Match[str]) -> str:
        text, target = link[1], (DOCS / page.file.src_uri).parent / link[2]
        path = target.resolve()
        if path.is_relative_to(DOCS) and not path.is_relative_to(DOCS / "examples"):
            return link[0]
        name = PurePosixPath(path.relative_to(DOCS.parent)).as_posix()
        return text if name in text else f"{text} (`{name}`)"

    linked = LINK.sub(replaced, markdown)
    if "status" in page.meta:  # a decision
        return re.sub(r"^# .+$", rf"\g<0>\n\n*{page.meta['status']}, {page.meta['date']}*", linked, count=1, flags=re.M)
    return linked
