"""The internal API of a service: the operations that the other services call, over HTTP or as functions.

An operation is a path, the model of its question, and a function from the service's state and the question to an
answer; that of a feature's part takes what the part opened instead of the state. Services of one process call it with
the question itself (`OwnProcess`), those of another by a POST whose body is the question, signed. Both ways give the
same answers and problems and count in the same metrics.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from fastapi import FastAPI
from opentelemetry.trace import SpanKind
from pydantic import BaseModel

from shared.errors.problems import InternalError, Problem, from_document
from shared.process.load import Load
from shared.routes import Service
from shared.rpc import SERVICE_HEADER, check_service_call
from shared.runtime import tracing
from shared.runtime.metrics import FAILURES, REQUESTS
from shared.security.tokens import Keyring
from shared.web.answers import JSON, Answer, problem_of_exception
from shared.web.fast_routes import FastRoute
from shared.web.request import Request, parse_model

PREFIX = "/internal"
SIGNATURE = SERVICE_HEADER.encode()
State = TypeVar("State")
Question = TypeVar("Question", bound=BaseModel)
Reply = TypeVar("Reply", bound=BaseModel)
Work = Callable[[State, Question], Awaitable[Reply]]


class Operation(NamedTuple):
    """What other services may call. `path` is without `/internal`."""

    path: str
    question: type[BaseModel]
    work: Callable[[Any, Any], Awaitable[BaseModel]]
    part: type | None = None

    async def answer(self, app: FastAPI, question: BaseModel) -> BaseModel:
        return await self.work(app.state.deps if self.part is None else app.state.parts[self.part], question)

    def route(self, keys: Keyring) -> FastRoute:
        """Its form over HTTP, which needs a signature by one of these keys. The framework would validate and copy every
        member of a batch once more.
        """

        async def answer(request: Request) -> Answer:
            body, signature = await request.body(), request.header(SIGNATURE) or ""
            check_service_call(keys, signature, request.method, request.scope["path"], body, now_s=time.time())
            reply = await self.answer(request.app, parse_model(body, self.question))
            return Answer(200, reply.model_dump_json().encode(), (JSON,))

        return FastRoute("POST", PREFIX + self.path, answer, in_schema=False)


class InternalApi(dict[str, Operation]):
    """The operations of a service by their paths."""

    def operation(
        self, path: str, question: type[Question], *, part: type[Any] | None = None
    ) -> Callable[[Work[State, Question, Reply]], Work[State, Question, Reply]]:
        """Adds the function below as the operation at this path. Every call of it must be repeatable. Of a feature's
        part, `part` is the class of what it opened.
        """

        def add(work: Work[State, Question, Reply]) -> Work[State, Question, Reply]:
            self[path] = Operation(path, question, work, part)
            return work

        return add


class OwnProcess:
    """A service as the others of its process call it. As on a server, a call goes on when its caller has gone."""

    def __init__(self, name: Service, app: FastAPI, api: InternalApi, load: Load | None) -> None:
        self._name, self._app, self._api, self._load = name, app, api, load
        self._running: set[asyncio.Task[BaseModel | Problem]] = set()

    async def __call__(self, path: str, question: BaseModel) -> BaseModel:
        """Raises the problem that the same call would raise over HTTP."""
        call = asyncio.create_task(self._answer(self._api[path], question))
        self._running.add(call)
        call.add_done_callback(self._running.discard)
        answered = await asyncio.shield(call)
        if isinstance(answered, Problem):
            raise answered
        return answered

    async def finish(self, within_s: float) -> None:
        """Waits for the calls in progress."""
        if self._running:
            await asyncio.wait(self._running, timeout=within_s)

    async def _answer(self, operation: Operation, question: BaseModel) -> BaseModel | Problem:
        started_s, status = time.perf_counter(), 200
        route = PREFIX + operation.path
        try:
            with tracing.span(f"POST {route}", kind=SpanKind.SERVER, service=self._name):
                return await operation.answer(self._app, question)
        except Exception as raised:  # noqa: BLE001
            problem = problem_of_exception(raised, route, service=self._name, route=route)
            status = problem.code
            return from_document(status, problem.body())  # a new one: the callee may raise one object to several
        finally:
            REQUESTS.labels(self._name, route, "POST", status).observe(time.perf_counter() - started_s)
            if status >= InternalError.status:
                FAILURES.labels(self._name, route, "POST").inc()
            if self._load is not None:
                self._load.after(0, status)
