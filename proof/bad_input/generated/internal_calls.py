"""Signed calls between services with bodies that schemathesis makes from the models of the internal API, valid and not.

Whoever has the key of services is trusted, but not to be free of faults: a wrong body is refused, and is no server
error. Without a signature nothing is answered.
"""

import importlib
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import psutil
from fastapi import FastAPI

from proof.bad_input.generated.answers import PROBLEM
from proof.bad_input.generated.documents import Call, operations_in
from proof.bad_input.generated.variations import variations
from proof.bad_input.sale import Findings
from shared.http.http1 import ConnectionLost, HttpClient
from shared.rpc import sign_service_call
from shared.security.tokens import Keyring, unb64
from tests.support.running.suite import RunningSuite

SERVICES = ("queue", "inventory", "orders")
PREFIX = "/internal"


def internal_document(service: str) -> dict[str, Any]:
    """The OpenAPI document of a service's internal API, which nobody publishes."""
    module, app = importlib.import_module(f"services.{service}.internal"), FastAPI()
    for operation in module.API.values():
        app.add_api_route(f"{PREFIX}{operation.path}", _taking(operation.question), methods=["POST"])
    return app.openapi()


def _taking(model: type) -> Any:
    def take(body: Any) -> None: ...

    take.__annotations__["body"] = model
    return take


def _service_keys(suite: RunningSuite) -> Keyring:
    rings = json.loads((suite.data_dir / "keys.json").read_text())["rotating"]["rings"]["service"]
    return Keyring({key["kid"]: unb64(key["secret"]) for key in rings})


def _calls(service: str, random: Random, count: int) -> Iterator[Call]:
    operations = operations_in(internal_document(service))
    for operation in operations:
        pool = [call for call in operation.coverage() if call.method == "POST"]
        chosen = random.sample(pool, min(len(pool), count // len(operations) // 2))
        yield from chosen
        yield from variations(pool, len(chosen), random)


async def _ports(suite: RunningSuite, keys: Keyring, client: HttpClient) -> dict[str, str]:
    """The address of each service's internal listener."""
    process = psutil.Process(suite.program.process.pid)
    listening: Sequence[Any] = [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    found = {}
    for port in {each.laddr.port for each in listening} - {suite.port}:
        for service in SERVICES:
            path = next(iter(internal_document(service)["paths"]))
            headers = sign_service_call(keys, "POST", path, b"")
            answer = await client.request("POST", f"http://127.0.0.1:{port}{path}", headers=headers, timeout=10)
            if answer.status_code != 404:
                found[service] = f"http://127.0.0.1:{port}"
    return found


async def send_internal(
    suite: RunningSuite, found: Findings, random: Random, client: HttpClient, *, calls: int
) -> None:
    """About so many calls in all."""
    keys = _service_keys(suite)
    for service, url in (await _ports(suite, keys, client)).items():
        for call in _calls(service, random, calls // len(SERVICES)):
            is_signed = random.random() < 0.95
            headers = sign_service_call(keys, "POST", call.target, call.body) if is_signed else {}
            found.count("internal calls")
            try:
                answer = await client.request(
                    "POST", f"{url}{call.target}", headers={**call.headers, **headers}, content=call.body, timeout=20
                )
            except (ConnectionLost, TimeoutError) as lost:
                found.add(call.label, f"no answer: {type(lost).__name__}", repr(call.body[:300]))
                continue
            example = f"{call.target} {call.body[:500]!r} -> {answer.content[:300]!r}"
            if answer.status_code >= 500:
                found.add(f"internal {call.label}", f"server error {answer.status_code}", example)
            elif answer.status_code >= 400 and answer.headers.get("content-type") != PROBLEM:
                found.add(f"internal {call.label}", f"{answer.status_code} is no problem document", example)
            elif not is_signed and answer.status_code not in (400, 401, 413):
                found.add(f"internal {call.label}", f"an unsigned call is answered {answer.status_code}", example)
