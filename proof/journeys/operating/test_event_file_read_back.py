"""An event file that is applied can be read back: it is the same file, and applying it again changes nothing."""

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.console.cli.rehearse import copy_of
from onsale import event_files
from onsale.admin_client import AdminClient
from shared.contracts.event_file import EventFile
from tests.properties.examples import bounded
from tests.support.browser import PNG, SVG
from tests.support.running.suite import RunningSuite

EXAMPLES = 25
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30
)  # what YAML keeps as it is; control characters are no name of a hall
STARTS = [
    ("2031-03-05T20:30:00+01:00", "Europe/Oslo"), ("2031-08-01T18:00:00Z", None), ("2031-08-01T18:00:00+09:00", None),
    ("2031-08-01T18:00:00-03:30", "UTC"),
]  # fmt: skip
LATER = "2031-01-0{}T10:00:00Z"
MONEY = st.integers(0, 10_000)
PERCENTS = st.sampled_from(["1.5", "7.25", "19", "0.001", "100"])


@st.composite
def sections(draw: st.DrawFn) -> list[dict[str, Any]]:
    """One to three sections, seated or standing."""
    found: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 3))):
        section: dict[str, Any] = {
            "section_id": f"S{number}", "name": draw(TEXTS), "price_minor": draw(MONEY), "fee_minor": draw(MONEY)
        }  # fmt: skip
        if draw(st.booleans()):
            rows = draw(st.integers(2, 5))
            levels = [{"name": "front", "rows": [1, 1], "price_minor": draw(MONEY), "fee_minor": draw(MONEY)}]
            shape: dict[str, Any] = {"kind": "seated", "rows": rows, "seats_per_row": draw(st.integers(1, 5))}
            section |= shape | {"price_levels": draw(st.sampled_from([[], levels]))}
            if draw(st.booleans()):
                section |= {"rows": ["1", "2", {"row": "AA", "seats": "even from 20"}], "seats": "odd from the right",
                            "seats_per_row": max(2, shape["seats_per_row"]),  # several rules say the same of one seat
                            "price_levels": [level | {"rows": ["1", "1"]} for level in section["price_levels"]],
                            "name": f"{section['name']} {number}"}  # fmt: skip
        else:
            section |= {"kind": "ga", "capacity": draw(st.integers(5, 60))}
        found.append(section)
    return found


def map_of(section: dict[str, Any]) -> dict[str, Any]:
    """Its outline, and its rows unless it has none."""
    rows = {"at": [20, 20], "pitch": 9.5, "spacing": 8, "curve": 0.25, "angle": 0}
    outline = [[0, 0], [600, 0], [600, 500]]
    return {"outline": outline} | ({"rows": rows} if section["kind"] == "seated" else {})


def allotment_of(section: dict[str, Any], number: int) -> dict[str, Any]:
    """Some of its places."""
    section_id = section["section_id"]
    seated = section["kind"] == "seated"
    places: dict[str, Any] = {"seats": [f"{section_id}-1-1"], "rows": [{"section_id": section_id, "rows": [2, 2]}]}
    standing = {"ga": [{"section_id": section_id, "quantity": number + 1}]}
    return {"allotment_id": f"kept-{number}", "name": "Kept", "kind": "house", **(places if seated else standing)}


LANES = [{"lane": 1, "name": "Club", "code_required": True, "weight": 3}, {"lane": 0, "name": "General", "max_line": 9}]
LOTTERY = {
    "ordering": "lottery", "queue_opens_at": LATER.format(1), "sale_starts_at": LATER.format(3),
    "lottery": {
        "entry_closes_at": LATER.format(2), "public_value": {"what": "the index", "known_at": LATER.format(3)}
    },
}  # fmt: skip
ROOMS: list[dict[str, Any]] = [
    {}, LOTTERY, {"lanes": LANES, "rate_per_s": 0.5, "burst": 1, "max_line": 500},
    {"queue_opens_at": LATER.format(1), "sale_starts_at": LATER.format(2), "sale_ends_at": LATER.format(3)},
    {"friction": {"proof_of_work": "off"}, "entry": {"signed_in_only": True}, "rollout_percent": 12.5},
    {"pace": {"autotune": "on", "rate_min": 1, "rate_max": 9}, "updates": {"window_ms": 100}, "stock_coupling": False},
    {"gate": {"return_to": ["https://shop.example"], "let_through": ["/static/*"], "on_engine_error": "admit"}},
]  # fmt: skip
SALES: list[dict[str, Any]] = [
    {}, {"tour": {"tour_id": "tour-1", "tickets_per_customer": 9}}, {"hold_ttl_b_s": 60, "hold_ttl_b_percent": 12.5},
    {"oversell": {"policy": "cancel_latest", "review_percent": 0}, "tickets_per_customer": 0, "grace_s": 0},
]  # fmt: skip


LINKS = st.none() | st.sampled_from(["https://seller.example/help?a=1&b=2#c", "https://xn--bcher-kva.example/"])
PICTURES = {"logo.svg": SVG, "hall.v2.png": PNG}


@st.composite
def brands(draw: st.DrawFn) -> dict[str, Any]:
    """A seller with some of what a brand may have."""
    name, logo = draw(st.sampled_from([(None, None), ("Polar & Söhne", None), ("Polar", "logo.svg")]))
    accent, accent_dark = draw(st.sampled_from([(None, None), ("#0B5d52", None), ("#0b5d52", "#8fd6c8")]))
    picture = draw(st.none() | st.just({"file": "hall.v2.png"}))
    fonts = draw(st.sampled_from(["standard", "slab"]))
    return {
        "name": name, "logo": logo, "accent": accent, "accent_dark": accent_dark,
        "background": draw(st.sampled_from([None, "#f2f7f5"])), "font_stack": fonts,
        "picture": picture and {**picture, "alt": draw(TEXTS)}, "help_url": draw(LINKS), "terms_url": draw(LINKS),
        "imprint_url": draw(LINKS), "privacy_url": draw(LINKS),
    }  # fmt: skip


@st.composite
def files(draw: st.DrawFn) -> EventFile:
    """Event files with every part in several forms."""
    at, zone = draw(st.sampled_from(STARTS))
    places = draw(sections())
    kept = [allotment_of(section, number) for number, section in enumerate(places) if draw(st.booleans())]
    fee: dict[str, Any] = {"name": draw(TEXTS), "per": draw(st.sampled_from(["ticket", "order"]))}
    size: dict[str, Any] = draw(st.sampled_from([{"amount_minor": 1}, {"percent": "2.5"}]))
    tax = {"name": draw(TEXTS), "percent": draw(PERCENTS), "included": draw(st.booleans())}
    stage = draw(st.sampled_from([None, {"at": [500, 60], "size": [600, 80]}]))
    drawn = {"size": [900, 900], "stage": stage, "sections": {one["section_id"]: map_of(one) for one in places}}
    return EventFile.model_validate({
        "map": draw(st.sampled_from([None, drawn])), "brand": draw(st.none() | brands()),
        "event_id": f"t-{uuid.uuid4().hex[:12]}", "name": draw(TEXTS), "venue": draw(TEXTS), "currency": "EUR",
        "starts_at": at, "ends_at": draw(st.sampled_from([None, "2031-08-03T00:00:00Z"])), "timezone": zone,
        "rehearsal": draw(st.booleans()), "room": draw(st.sampled_from(ROOMS)),
        "sales": draw(st.sampled_from(SALES)), "sections": places, "fees": draw(st.sampled_from([[], [fee | size]])),
        "taxes": draw(st.sampled_from([[], [tax]])),
        "checkout": draw(st.sampled_from([None, {"background_percent": 37.5}])),
        "allotments": [one | {"opens_at": draw(st.sampled_from([None, LATER.format(9)]))} for one in kept],
    })  # fmt: skip


async def read_back(suite: RunningSuite, file: EventFile) -> tuple[EventFile, dict[str, bool]]:
    """The file as it is read back after it was applied with its pictures, and what applying that would change."""
    async with suite.operator() as operator:
        admin = AdminClient(operator, suite.url, suite.admin_key)
        pictures = {name: PICTURES[name] for name in file.files}
        await admin.apply(file, pictures=pictures)
        read = await admin.event_file(file.event_id)
        stored = await admin.pictures(file.event_id, pictures)
        assert stored == pictures
        return read, await admin.apply(read, pictures=stored, dry_run=True)


@given(file=files())
@bounded(examples=EXAMPLES, steps=1)
def test_a_file_that_is_read_back_is_the_same_and_changes_nothing(
    suite: RunningSuite, tmp_path_factory: pytest.TempPathFactory, file: EventFile
) -> None:
    read, changes = asyncio.run(read_back(suite, file))
    assert changes == {"inventory": False, "orders": False, "queue": False}
    assert read.zone == file.zone
    assert read.model_copy(update={"timezone": file.timezone}) == file
    path: Path = tmp_path_factory.mktemp("files") / "event.yaml"
    path.write_text(event_files.write(read), encoding="utf-8")
    assert event_files.read(path) == read
    copy, _ = copy_of(read, f"{file.event_id}-rehearsal")
    kept = {"sections", "fees", "allotments", "map", "brand"}
    assert copy.model_dump(include=kept) == file.model_dump(include=kept)


async def test_an_unknown_event_cannot_be_read(suite: RunningSuite) -> None:
    async with suite.operator() as operator:
        for service in ("inventory", "orders", "queue"):
            answer = await operator.get(f"/admin/{service}/events/nowhere")
            assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-event")
