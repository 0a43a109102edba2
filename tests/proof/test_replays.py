"""Traces of the models give the same on the real services; a model without one of their guards does not."""

import random
from contextlib import AsyncExitStack
from itertools import islice
from typing import Any

import pytest

from proof.models.explorer import ProtocolModel, explore
from proof.models.line import LineProtocol
from proof.models.money import MoneyProtocol
from proof.models.replays import Differs, replay, traces
from proof.models.run import MODELS, without_guard
from proof.models.stock import StockProtocol

TRACES, STEPS = 3, 20


@pytest.mark.parametrize("kind", MODELS)
async def test_traces_of_a_model_give_the_same_on_the_real_service(
    kind: type[ProtocolModel[Any]], redis_url: str, postgres_url: str, pytestconfig: pytest.Config
) -> None:
    system, misfortunes = MODELS[kind]
    rng = random.Random(pytestconfig.option.hypothesis_seed)
    found = explore(kind(), depth=100, states_max=1_000)
    async with AsyncExitStack() as stack:
        real = await system.open(stack, postgres_url, redis_url)
        for path in islice(traces(found, rng, steps=STEPS, misfortunes=misfortunes), TRACES):
            await replay(found.model, path, real)


@pytest.mark.parametrize(
    ("kind", "guard"),
    [
        (LineProtocol, "one live place a holder"),
        (StockProtocol, "the seat is free"),
        (MoneyProtocol, "the charge's key"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_the_real_service_does_not_do_what_its_model_does_without_a_guard(
    kind: type[ProtocolModel[Any]], guard: str, redis_url: str, postgres_url: str
) -> None:
    counterexample = without_guard(kind, guard).counterexample
    assert counterexample is not None
    async with AsyncExitStack() as stack:
        real = await MODELS[kind][0].open(stack, postgres_url, redis_url)
        with pytest.raises(Differs, match="model and system differ in"):
            await replay(kind(without=guard), counterexample.path, real)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (StockProtocol, "Redis saves; p0 holds b; Redis goes back; five seconds pass; the holds end; p1 holds b;"
                        "p0 opens; p0 writes; p1 opens; p1 writes; p0 sets the deadline; p0: y begins b"),
        (LineProtocol, "p0 numbers a in the database; p0 commits 1 at last; p0 ticks; p0 dies; p0 ends 1;"
                       "p1 ticks later; p0 frees 1; p1 opens; p1 saves"),
    ],
    ids=["a hold that is written late has the end of its own grant", "a place that has ended misses no call"],
)  # fmt: skip
async def test_a_trace_that_a_model_once_had_otherwise(
    kind: type[ProtocolModel[Any]], path: str, redis_url: str, postgres_url: str
) -> None:
    async with AsyncExitStack() as stack:
        real = await MODELS[kind][0].open(stack, postgres_url, redis_url)
        await replay(kind(), [label.strip() for label in path.split(";")], real)
