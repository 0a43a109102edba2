"""A little of everything that `make proof` tries with bad input, on one suite; it finds nothing."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from onsale.local.engines import Engines
from proof.bad_input.changed.credentials import ChangedCredentials, credentials_of
from proof.bad_input.changed.files import check_backups, check_event_files
from proof.bad_input.changed.webhooks import ChangedWebhooks
from proof.bad_input.generated.api import SLICE, send_generated
from proof.bad_input.generated.internal_calls import send_internal
from proof.bad_input.raw.raw_http import send_direct, send_to_suite
from proof.bad_input.sale import FOR_EVERYBODY, Findings, sale_for_fans
from shared.http.http1 import HttpClient
from tests.support.running.suite import RunningSuite, running_suite

SEED = int(os.environ.get("ONSALE_HYPOTHESIS_SEED", "1"))


@pytest.fixture(scope="module")
def suite() -> Iterator[RunningSuite]:
    """Generated admin requests change settings, so they get a suite that no other module uses."""
    with running_suite(**FOR_EVERYBODY) as running:
        yield running


@pytest.fixture
def found() -> Iterator[Findings]:
    """No fault may be in it after a test."""
    findings = Findings()
    yield findings
    assert not findings.faults, "\n".join(findings.sentences(f"seed {SEED}"))


async def test_answers_to_generated_requests_match_the_documents(suite: RunningSuite, found: Findings) -> None:
    """Every operation except the streams, which do not end by themselves."""
    await send_generated(suite, found, seconds=3_600, seed=SEED, sizes=SLICE, rounds=1)
    assert found.counts["generated requests"] > 120
    assert found.counts["requests"] > 300


async def test_raw_bytes_are_answered_once_and_by_http(suite: RunningSuite, found: Findings) -> None:
    await send_direct(found, seconds=1, random=Random(SEED))
    await send_to_suite(suite, found, seconds=1, random=Random(SEED))
    assert found.counts["raw requests"] > 50


async def test_changed_credentials_webhooks_and_calls_are_refused(suite: RunningSuite, found: Findings) -> None:
    random = Random(SEED)
    async with suite.browser() as browser, HttpClient() as client:
        sale = await sale_for_fans(suite, browser)
        credentials = await credentials_of(suite, browser, sale)
        await ChangedCredentials(suite, found, random, client).send_all(credentials, seconds=2)
        await ChangedWebhooks(suite, found, random, browser).send_all(sale.known["reference"][0])
        await send_internal(suite, found, random, client, calls=100)
    assert found.counts["mutated tokens"] > 50
    assert found.counts["mutated webhooks"] > 200
    assert found.counts["internal calls"] > 20


async def test_changed_event_files_and_backups_are_refused(
    suite: RunningSuite, found: Findings, tmp_path: Path
) -> None:
    check_event_files(found, tmp_path, Random(SEED), count=100)
    engines = Engines(suite.engines["postgres_url"], suite.engines["redis_url"])
    await check_backups(found, tmp_path, engines, Random(SEED), loads=1)
    assert found.counts["mutated files"] > 200
