"""The example of a package of one's own: built, installed, and a ticket bought with it."""

import ast
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from shared import VERSION
from shared.features import BadFeature
from shared.http.outgoing import ExternalResponse, NotReached
from shared.payment_provider import ChargeRequest, Provider, ProviderRejected, Unreachable
from shared.runtime.clock import now_ms
from tests.support.running.serving import serving
from tests.support.running.suite import bearer, fan_of, running_suite
from tests.support.wait import wait_until

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "acme-onsale"
OURS = {"services", "shared", "onsale", "features", "tests"}
SECRETS = {"ORDERS_ACME_SECRET_KEY": "sk_acme", "ORDERS_ACME_WEBHOOK_SECRET": "wh_acme"}


def python(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the example is installed, from its wheel."""
    folder = tmp_path_factory.mktemp("acme")
    shutil.copytree(EXAMPLE, folder / "sources")
    built = python("-m", "build", "-q", "--no-isolation", "--wheel", "-o", folder, folder / "sources")
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = folder.glob("*.whl")
    to = folder / "installed"
    installed = python("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", to, wheel)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    return to


class Acme:
    """Acme Pay: takes every card but `card_declined`."""

    def __init__(self) -> None:
        self.payments: dict[str, dict[str, Any]] = {}
        self.refunds: list[dict[str, Any]] = []

    def app(self) -> Starlette:
        return Starlette(routes=[
            Route("/payments", self.pay, methods=["POST"]),
            Route("/payments", self.find),
            Route("/payments/{payment}", self.read),
            Route("/payments/{payment}/refunds", self.refund, methods=["POST"]),
        ])  # fmt: skip

    async def pay(self, request: Request) -> JSONResponse:
        assert request.headers["authorization"] == "Bearer sk_acme"
        wanted, key = await request.json(), request.headers["idempotency-key"]
        status = "failed" if wanted["card"] == "card_declined" else "succeeded"
        facts = {name: wanted[name] for name in ("order", "amount", "currency")}
        made = {"id": f"pay_{len(self.payments)}", "key": key, "status": status, "at_ms": now_ms(), **facts}
        return JSONResponse(self.payments.setdefault(key, made))

    async def find(self, request: Request) -> JSONResponse:
        order = request.query_params.get("order")
        return JSONResponse({"payments": [each for each in self.payments.values() if order in (None, each["order"])]})

    async def read(self, request: Request) -> JSONResponse:
        [found] = [each for each in self.payments.values() if each["id"] == request.path_params["payment"]]
        return JSONResponse(found)

    async def refund(self, request: Request) -> JSONResponse:
        self.refunds.append(await request.json())
        return JSONResponse({"id": f"refund_{len(self.refunds)}"})


async def test_an_installed_package_takes_payments_and_refunds_them(package: Path) -> None:
    acme = Acme()
    async with serving(acme.app()) as port:
        settings = {
            "ORDERS_PAYMENT_PROVIDERS": "sandbox,acme",
            "ORDERS_ACME_URL": f"http://127.0.0.1:{port}",
            **SECRETS,
        }
        with running_suite(PYTHONPATH=str(package), **settings) as suite:
            event_id = await suite.open_event()
            async with suite.browser() as browser, suite.operator() as operator:
                offered = (await browser.get("/payments/providers")).json()["providers"]
                assert {"name": "acme", "methods": ["card"]} in offered
                fan = await fan_of(browser, event_id).come_in()
                held = await fan.hold({"seats": ["A-1-1"]})
                card = {"provider": "acme", "method": "card", "token": "card_1"}
                order = await fan.order(held, payment=card)  # type: ignore[arg-type]
                assert (await fan.settled(order))["status"] == "confirmed"
                reference, token = order["reference"], bearer(order["order_token"])
                path, key = f"/admin/orders/{reference}/refund", {"idempotency-key": "rain"}
                answer = await operator.post(path, json={"reason": "rain"}, headers=key)
                assert answer.is_success, answer.text

                async def is_refunded() -> bool:
                    shown = await browser.get(f"/orders/{reference}", headers=token)
                    return bool(shown.json()["status"] == "refunded")

                await wait_until(is_refunded)
            [payment] = acme.payments.values()
            assert (payment["order"], payment["amount"]) == (reference, 5250)
            assert acme.refunds == [{"amount": 5250}]
            assert await suite.audit(event_id) == []


def test_a_package_that_needs_a_name_we_do_not_have_is_refused_in_one_line(package: Path, tmp_path: Path) -> None:
    shutil.copytree(package, tmp_path / "newer")
    module = tmp_path / "newer" / "acme_onsale" / "__init__.py"
    module.write_text(module.read_text().replace("import Feature", "import FromTheFuture, Feature"))
    ran = python("-m", "onsale", "--help", PYTHONPATH=str(tmp_path / "newer"))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(
        f"onsale: Onsale {VERSION} cannot load the feature at acme_onsale:FEATURE: cannot import name 'FromTheFuture' "
        "from 'onsale.extend'"
    )
    assert ran.stderr.count("\n") == 1


def test_what_is_switched_off_is_installed_or_refused_in_one_line(package: Path) -> None:
    ran = python("-m", "onsale", "serve", "orders", PYTHONPATH=str(package), ONSALE_FEATURES_OFF="acmee")
    last = ran.stderr.splitlines()[-1]
    assert ran.returncode == 2
    assert re.fullmatch(r"onsale: ONSALE_FEATURES_OFF names no installed feature: acmee; .*\bacme\b.*", last)


def test_a_command_reads_its_feature_and_imports_no_framework(package: Path) -> None:
    code = "import sys; from onsale.cli.app import commands; commands(); print('acme_onsale' in sys.modules, "
    ran = python("-c", f"{code}{{'fastapi', 'pydantic', 'aiohttp'}} & {{*sys.modules}})", PYTHONPATH=str(package))
    assert ran.stdout == "True set()\n", ran.stderr


def test_it_imports_one_module_of_ours() -> None:
    nodes = [node for path in EXAMPLE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    names = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert {name for name in names if name.partition(".")[0] in OURS} == {"onsale.extend"}


def test_the_guide_shows_what_is_in_the_package() -> None:
    guide = (DOCS / "develop" / "features.md").read_text()
    for language, file in (("toml", "pyproject.toml"), ("python", "acme_onsale/__init__.py")):
        [shown] = re.findall(rf"```{language}\n(.*?)```", guide, re.S)
        assert shown in (EXAMPLE / file).read_text()


# -- the provider ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def acme_onsale() -> Iterator[ModuleType]:
    """The module with the provider, without an installation."""
    spec = importlib.util.spec_from_file_location("acme_onsale", EXAMPLE / "acme_onsale" / "provider.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class NoServer:
    """A client that reaches no server."""

    async def request(self, method: str, url: str, **_: Any) -> ExternalResponse:
        raise NotReached(url)


def opened(module: ModuleType, client: object) -> Any:
    settings = module.AcmeSettings(acme_secret_key="sk_acme", acme_webhook_secret="wh_acme")
    return module.open_provider(client, settings, 1.0)


def test_it_has_every_call_of_the_protocol(acme_onsale: ModuleType) -> None:
    provider = opened(acme_onsale, NoServer())
    calls = {name: call for name, call in vars(Provider).items() if inspect.isfunction(call) and name[0] != "_"}
    assert "capture" in calls
    for name, call in calls.items():
        implemented = getattr(type(provider), name)
        assert [*inspect.signature(implemented).parameters] == [*inspect.signature(call).parameters], name


async def test_it_charges_and_raises_the_errors_of_the_protocol(acme_onsale: ModuleType) -> None:
    class Server:
        async def request(self, method: str, url: str, **_: Any) -> ExternalResponse:
            if url.endswith("/void"):
                return ExternalResponse(409, {}, b'{"code": "no"}')
            charge = {"id": "p1", "order": "R", "key": "R:1", "currency": "EUR", "status": "failed", "amount": 1}
            return ExternalResponse(200, {}, orjson.dumps(charge | {"at_ms": 2, "reason": "declined"}))

    provider = opened(acme_onsale, Server())
    request = ChargeRequest(reference="R", key="R:1", amount_minor=1, currency="EUR", method="card")
    charge = await provider.create(request)
    assert (charge.status, charge.reason, charge.occurred_at_ms) == ("failed", "declined", 2)
    assert (await provider.cancel("p1")).status == "failed"
    with pytest.raises(ProviderRejected):
        await provider._call("POST", "/payments/p1/void")
    with pytest.raises(Unreachable):
        await opened(acme_onsale, NoServer()).create(request)


def test_it_names_the_settings_it_lacks(acme_onsale: ModuleType) -> None:
    with pytest.raises(BadFeature, match="ORDERS_ACME_SECRET_KEY and ORDERS_ACME_WEBHOOK_SECRET"):
        acme_onsale.open_provider(NoServer(), acme_onsale.AcmeSettings(), 1.0)
