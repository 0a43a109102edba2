"""The part `bad_input` of `make proof`: requests, bytes, credentials and files that nobody should send.

Half of the time goes to requests generated from the OpenAPI documents, as they find the most; the rest to raw bytes, to
changed credentials, webhooks and codes, and to changed event files and backups. Each stops when its time is over, so a
budget of seconds tries a little of everything.
"""

import asyncio
import logging
import tempfile
import time
import warnings
from pathlib import Path
from random import Random

from onsale.local.engines import Engines
from proof.bad_input.changed.credentials import ChangedCredentials, credentials_of
from proof.bad_input.changed.files import check_backups, check_event_files
from proof.bad_input.changed.webhooks import ChangedWebhooks, send_changed_codes, send_changed_proofs
from proof.bad_input.generated.api import send_generated
from proof.bad_input.generated.internal_calls import send_internal
from proof.bad_input.raw.raw_http import send_direct, send_through, send_to_suite
from proof.bad_input.sale import FOR_EVERYBODY, Findings, close_sales, sale_for_fans
from proof.part import Budget, Result
from shared.http.http1 import HttpClient
from tests.support.programs import find_program
from tests.support.running.suite import KINDS, RunningSuite, running_suite

COMMAND = "python -m proof --only bad_input --seed {}"
ROUND_MAX_S = 900
API, RAW, THROUGH, SUITE, CREDENTIALS = 0.5, 0.08, 0.05, 0.05, 0.12  # shares of the time


def run(budget: Budget) -> Result:
    """Rounds of at most `ROUND_MAX_S` seconds with seeds that follow from that of the budget, each with a new suite."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what clients break off is meant
    warnings.simplefilter("ignore")
    result, until_s, seed = Result(), time.monotonic() + budget.seconds, budget.seed
    while (left_s := until_s - time.monotonic()) > 0:
        found = Findings()
        with tempfile.TemporaryDirectory() as folder, running_suite(**FOR_EVERYBODY) as suite:
            asyncio.run(one_round(suite, found, Path(folder), Budget(min(left_s, ROUND_MAX_S), seed)))
        result.add(Result(found.counts, [], found.sentences(COMMAND.format(seed))))
        print(f"bad_input, seed {seed}: {found.counts}, {len(found.faults)} faults", flush=True)
        seed += 1
    return result


async def one_round(suite: RunningSuite, found: Findings, folder: Path, budget: Budget) -> None:
    """Everything once; the seed makes the same choices again."""
    random, seconds, began_s = Random(budget.seed), budget.seconds, time.monotonic()

    def say(next_part: str) -> None:
        print(f"  {time.monotonic() - began_s:.0f} of {seconds:.0f} s: {next_part}", flush=True)

    say("raw bytes to our server, through each proxy, and to the suite")
    await send_direct(found, seconds=seconds * RAW, random=random)
    for kind in filter(find_program, KINDS):
        await send_through(kind, found, folder, seconds=seconds * THROUGH, random=random)
    await send_to_suite(suite, found, seconds=seconds * SUITE, random=random)
    say("changed credentials, webhooks and codes; calls between services")
    async with suite.browser() as browser, HttpClient() as client:
        sale = await sale_for_fans(suite, browser)
        credentials = await credentials_of(suite, browser, sale)
        changed = ChangedCredentials(suite, found, random, client)
        await changed.send_all(credentials, seconds=seconds * CREDENTIALS)
        await ChangedWebhooks(suite, found, random, browser).send_all(sale.known["reference"][0])
        await send_changed_codes(suite, found, random, browser)
        await send_changed_proofs(suite, found, random, browser)
        await send_internal(suite, found, random, client, calls=int(seconds) * 5)
    await close_sales(suite)
    say("changed event files and backups")
    check_event_files(found, folder, random, count=int(seconds) * 4)
    engines = Engines(suite.engines["postgres_url"], suite.engines["redis_url"])
    await check_backups(found, folder, engines, random, loads=int(seconds) // 20)
    say("requests made from the documents of the API")
    left_s = max(began_s + seconds - time.monotonic(), seconds * API)
    await send_generated(suite, found, seconds=left_s, seed=budget.seed)
