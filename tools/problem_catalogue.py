"""Every problem that the API answers with: the file behind the gateway's problem pages.

`make api-documents` writes it; a test fails when it differs from the code.
"""

import importlib
import inspect
from typing import Any

from shared.errors.problems import Problem, known
from shared.features import package_of, services
from shared.routes import SERVICES
from shared.web.parts import parts_of


def catalogue() -> list[dict[str, Any]]:
    """Each problem by slug: title, status, the rest of its docstring, and its service (none for those of all)."""
    for service in services():
        importlib.import_module(f"{package_of(service)}.app")
        parts_of(service)
    ours = [problem for problem in known() if problem.__module__.startswith(("services.", "shared.", "features."))]
    return [_entry(problem) for problem in sorted(ours, key=lambda problem: problem.slug)]


def _entry(problem: type[Problem]) -> dict[str, Any]:
    _, _, more = inspect.cleandoc(problem.__doc__ or "").partition("\n")
    return {
        "slug": problem.slug, "title": problem.title(), "status": problem.status, "more": " ".join(more.split()),
        "retry_after_s": problem.retry_after_default_s, "service": _service_of(problem.__module__),
    }  # fmt: skip


def _service_of(module: str) -> str | None:
    """The service that answers with a problem of this module: its own, or that of a feature's part of it."""
    own = (service for service in services() if module.startswith(f"{package_of(service)}."))
    return next(own, next((part for part in module.split(".")[2:3] if part in SERVICES), None))
