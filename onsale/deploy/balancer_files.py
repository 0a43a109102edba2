"""Renders nginx.conf and haproxy.cfg for a plan, from the templates in `onsale/deploy/templates`.

The routes are those of `shared/routes.py`; a value that a template names and nobody gives stops the rendering.
"""

from functools import partial
from importlib.resources import files
from operator import methodcaller
from types import SimpleNamespace

from mako.template import Template

from onsale.deploy import balancers
from onsale.deploy.balancers import OWN_ERRORS, Plan
from shared.features import problem_page
from shared.routes import ROUTES

NOT_BY_HAPROXY = (403, 405, 414, 501, 505)  # errors that HAProxy never answers by itself
DOCUMENTS = SimpleNamespace(  # for people too, where no feature has pages
    MEDIA_TYPE=balancers.PROBLEM_TYPE, headers=methodcaller("headers"),
    page=partial(balancers.document, request_id=""),
)  # fmt: skip


def nginx_conf(plan: Plan | None = None) -> str:
    return _render("nginx.conf", plan or Plan())


def haproxy_cfg(plan: Plan | None = None) -> str:
    return _render("haproxy.cfg", plan or Plan())


def _render(name: str, plan: Plan) -> str:
    text = files(__package__).joinpath("templates", f"{name}.mako").read_text(encoding="utf-8")
    answered = sorted(
        (status, problem)
        for problem, statuses in OWN_ERRORS.items()
        for status in statuses
        if status not in NOT_BY_HAPROXY
    )
    rendered: str = Template(text, strict_undefined=True).render(  # noqa: S702 - no HTML
        plan=plan, routes=ROUTES, answered=answered, balancers=balancers, page=problem_page() or DOCUMENTS
    )
    return rendered
