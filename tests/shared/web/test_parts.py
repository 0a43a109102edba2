"""A feature's part of a service: its routes, its object, its loops; and a feature that is switched off."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared import features
from shared.concurrency.background import Loops
from shared.contracts import file_parts
from shared.contracts.admin.checks import Check, ok
from shared.contracts.file_parts import RoomRules, only_known, part_of, with_file_parts
from shared.errors.problems import MEDIA_TYPE
from shared.features import BadFeature, Feature, PaymentProvider
from shared.process.settings import ServiceSettings
from shared.routes import SALE_SERVICES, SERVICES, Service
from shared.web import parts
from shared.web.answers import Answer
from shared.web.app import create_service, public
from shared.web.fast_routes import FastRoute
from shared.web.internal_api import InternalApi
from shared.web.parts import Part, opened, parts_of, with_settings_of_parts
from shared.web.request import Request

steps: list[str] = []
worked = asyncio.Event()
router = APIRouter()


class Bell:
    """What the part opens."""

    def __init__(self, sound: str) -> None:
        self.sound = sound


@router.get("/bell")
async def ring(bell: Annotated[Bell, Depends(opened(Bell))]) -> dict[str, str]:
    return {"sound": bell.sound}


async def work() -> None:
    worked.set()


@asynccontextmanager
async def open_bell(state: str, loops: Loops) -> AsyncIterator[Bell]:
    steps.append(f"opened with {state}")
    loops.every(60, work, name="queue.bell")
    await asyncio.sleep(0)
    assert not worked.is_set(), "another part may not be open yet"
    yield Bell("ding")
    steps.append("closed")


@asynccontextmanager
async def running() -> AsyncIterator[None]:
    steps.append("service works")
    yield
    steps.append("service rests")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.deps = "the state"
    steps.append("service open")
    app.state.running = running
    yield
    steps.append("service closed")


def ring_fast(request: Request) -> Answer:
    return Answer(200, request.part(Bell).sound.encode(), ())


class Question(BaseModel):
    """What another service asks."""

    sound: str


INTERNAL = InternalApi()


@INTERNAL.operation("/bell", Question, part=Bell)
async def asked(bell: Bell, question: Question) -> Question:
    return Question(sound=f"{question.sound} and {bell.sound}")


class Knob:
    """The form of a page with a bell."""

    paths = ("/bell",)

    def answering(self, request: Request, api: object) -> Any:
        return Answer(303) if request.scope["path"] in self.paths else None


PAGE = SimpleNamespace(
    MEDIA_TYPE="text/html", wanted=lambda method, accepts: b"text/html" in accepts,
    page=lambda problem, language: f"{problem.slug} in {language}", headers=lambda problem: {},
)  # fmt: skip
PART = Part(
    routers=[router],
    internal_api=INTERNAL,
    forms=Knob(),
    fast_routes=[FastRoute("GET", "/fast", ring_fast, in_schema=False)],
    open=open_bell,
)


@pytest.fixture
def features_found(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Feature]]:
    """The installed features, which a test lists."""
    found: list[Feature] = []
    for module in (features, parts):
        monkeypatch.setattr(module, "installed", lambda: tuple(found))
    parts._parts.cache_clear()
    steps.clear()
    worked.clear()
    yield found
    parts._parts.cache_clear()


def service(**settings: object) -> FastAPI:
    chosen = ServiceSettings(log_requests=False, **settings)  # type: ignore[arg-type]
    return create_service("queue", chosen, title="test", lifespan=lifespan)


BELL = Feature(
    name="bell", what="Rings.", parts={"queue": f"{__name__}:PART"}, problem_page=f"{__name__}:PAGE"
)  # fmt: skip


async def test_a_part_is_opened_after_its_service_and_closed_before_it(features_found: list[Feature]) -> None:
    features_found.append(BELL)
    app = service()
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://test") as client:
            assert (await client.get("/bell")).json() == {"sound": "ding"}
            assert (await client.get("/fast")).text == "ding"
        async with asyncio.timeout(5):
            await worked.wait()
    assert steps == [
        "service open", "opened with the state", "service works", "service rests", "closed", "service closed"
    ]  # fmt: skip


@pytest.mark.parametrize(("off", "answers"), [("", (303, "text/html")), ("bell", (404, MEDIA_TYPE))])
async def test_forms_operations_and_problem_pages_of_a_feature_are_there_while_it_is(
    features_found: list[Feature], off: str, answers: tuple[int, str]
) -> None:
    features_found.append(BELL)
    app = service(features_off=off)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://test") as client:
        posted = await client.post("/bell", data={"a": "1"})
        refused = await client.get("/gong", headers={"accept": "text/html"})
        assert (posted.status_code, refused.headers["content-type"]) == answers
        assert (await client.get("/gong")).headers["content-type"] == MEDIA_TYPE, "for programs"
        document = (await client.get("/openapi.json")).json()
        assert ("/bell" in document["paths"]) == (not off)
    app.state.parts[Bell] = Bell("dong")
    with pytest.raises(KeyError) if off else nullcontext():
        assert await app.state.own_process("/bell", Question(sound="ding")) == Question(sound="ding and dong")


async def test_what_is_switched_off_has_no_route_and_no_loop(features_found: list[Feature]) -> None:
    features_found.append(BELL)
    app = service(features_off="bell")
    client = httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://test")
    async with app.router.lifespan_context(app), client:
        assert (await client.get("/bell")).status_code == (await client.get("/fast")).status_code == 404
    assert steps == ["service open", "service works", "service rests", "service closed"]


def test_a_name_that_is_not_installed_stops_the_start(features_found: list[Feature]) -> None:
    features_found.append(BELL)
    with pytest.raises(BadFeature, match="no installed feature: lotery; installed are: bell"):
        service(features_off="lotery, bell")


def test_two_features_of_one_name_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "_ours", lambda: [BELL, BELL])
    with pytest.raises(BadFeature, match="the same name: bell"):
        features.installed.__wrapped__()


def test_two_payment_providers_of_one_name_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    gong = Feature(name="gong", what="Rings.", providers=[PaymentProvider("ring", "anywhere:RING")] * 2)
    monkeypatch.setattr(features, "_ours", lambda: [gong])
    with pytest.raises(BadFeature, match="payment providers have the same name: ring"):
        features.installed.__wrapped__()


def test_a_package_is_found_by_its_entry_point_or_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def registers(name: str) -> None:
        point = EntryPoint(name="bell", value=f"{__name__}:{name}", group=features.GROUP)
        monkeypatch.setattr(features, "entry_points", lambda group: [point] if group == point.group else [])

    monkeypatch.setattr(features, "_ours", list)
    registers("BELL")
    assert features.installed.__wrapped__() == (BELL,)
    registers("GONG")
    with pytest.raises(BadFeature, match=f"cannot load the feature at {__name__}:GONG: .* no attribute 'GONG'"):
        features.installed.__wrapped__()


class BellSettings(BaseSettings):
    """Settings of a part."""

    bell_sound: str = "ding"


class OwnSettings(ServiceSettings):
    """Those of the service."""

    model_config = SettingsConfigDict(env_prefix="QUEUE_")


WITH_SETTINGS = Part(settings=BellSettings)


def test_the_settings_of_a_part_join_those_of_its_service(
    features_found: list[Feature], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Under the service's prefix or for all services, from the environment or a file."""
    features_found.append(Feature(name="bell", what="Rings.", parts={"queue": f"{__name__}:WITH_SETTINGS"}))
    joined: Any = with_settings_of_parts(OwnSettings, "queue")
    assert isinstance(joined(), OwnSettings)
    assert joined().bell_sound == "ding"
    (tmp_path / "onsale_bell_sound").write_text("dong\n")
    monkeypatch.setenv("ONSALE_SECRETS_DIR", str(tmp_path))
    assert joined().bell_sound == "dong"
    monkeypatch.setenv("QUEUE_BELL_SOUND", "clang")
    monkeypatch.setenv("BELL_SOUND", "nobody's")
    assert joined().bell_sound == "clang"
    assert with_settings_of_parts(OwnSettings, "orders") is OwnSettings


def test_a_part_is_only_that_of_its_service(features_found: list[Feature]) -> None:
    features_found.append(BELL)
    assert parts_of("queue") == (PART,)
    assert parts_of("orders") == ()


def test_a_service_is_installed_with_the_feature_that_brings_it(features_found: list[Feature]) -> None:
    assert features.services() == SALE_SERVICES
    features_found.append(Feature(name="board", what="Shows.", services={"console": "acme.board"}))
    assert features.services() == SERVICES
    assert [features.package_of(service) for service in ("queue", "console")] == ["services.queue", "acme.board"]


def test_our_features_say_what_they_are() -> None:
    """What an operator reads, and where the parts lie, by which statements and architecture are found."""
    for feature in features._ours():
        assert feature.what.endswith("."), feature.name
        assert all(
            where.startswith(f"features.{feature.name}.{service}") for service, where in feature.parts.items()
        ), feature.name


class BellRoom(RoomRules):
    """What the feature adds to a room."""

    bell: Literal["ding", "dong"] = "ding"

    def findings(self) -> list[Check]:
        return [*super().findings(), ok("Bell", self.bell)]


class Room(RoomRules):
    """The room of the core."""

    chairs: int = 4


def test_fields_of_a_feature_join_the_event_file(
    features_found: list[Feature], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the feature they are refused in a file, and passed over in what was stored with it."""
    monkeypatch.setattr(file_parts, "installed", lambda: tuple(features_found))
    assert with_file_parts("room")(Room) is Room
    stored = {"chairs": 3, "bell": "dong"}
    with pytest.raises(ValidationError, match="bell"):
        Room.model_validate(stored)
    assert TypeAdapter(Annotated[Room, only_known(Room)]).validate_python(stored) == Room(chairs=3)
    with pytest.raises(TypeError, match="Room has no fields of BellRoom"):
        part_of(Room(), BellRoom)

    features_found.append(Feature(name="bell", what="Rings.", file_parts={"room": f"{__name__}:BellRoom"}))
    assert with_file_parts("event")(Room) is Room
    joint: Any = with_file_parts("room")(Room)
    kept: TypeAdapter[Room] = TypeAdapter(Annotated[joint, only_known(joint)])
    room = kept.validate_python({**stored, "gone": 1})
    assert (room.chairs, part_of(room, BellRoom).bell) == (3, "dong")
    assert [each.found for each in room.findings()] == ["dong"]
    assert joint().model_dump() == {"chairs": 4, "bell": "ding"}
    with pytest.raises(ValidationError, match="ding"):
        joint.model_validate({"bell": "clang"})


@pytest.mark.parametrize(
    ("feature", "service"),
    [pytest.param(each, part, id=f"{each.name} {part}") for each in features.installed() for part in each.parts],
)
async def test_no_route_of_a_feature_that_is_switched_off_is_left(feature: Feature, service: Service) -> None:
    module, part = import_module(f"{features.package_of(service)}.app"), features.load(feature.parts[service])
    routes = [(method, each.path) for router in part.routers for each in router.routes for method in each.methods]
    app = module.create_app(module.Settings(features_off=feature.name))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://test") as client:
        for method, path in routes + [(each.method, each.path) for each in part.fast_routes]:
            answer = await client.request(method, re.sub(r"\{.*?\}", "arena", path))
            assert answer.status_code in (404, 405), (method, path)  # 405: by another method the path is the core's
