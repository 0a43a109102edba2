"""The admin APIs of the other services, asked as an operator who may only view, or used as the one who is signed in."""

import time
from collections.abc import Mapping
from typing import Any

import httpx
from pydantic import ValidationError

from features.console.metrics import QUESTIONS
from shared.contracts.admin.operation import RequestBody, as_json
from shared.contracts.admin.operator_calls import OPERATIONS, OperatorCalls
from shared.errors.problems import NoAnswer, Problem, UpstreamFailed, from_document
from shared.routes import at_suite, route
from shared.security.auth import Operator, OperatorSession, sign_session
from shared.security.tokens import Keyring

TOKEN_S = 60


class AdminApi(OperatorCalls):
    """Asks one service at a time; each question has a deadline and is counted. Without a `session` as itself."""

    def __init__(
        self, client: httpx.AsyncClient, url: str, keys: Keyring, *, deadline_s: float,
        session: OperatorSession | None = None,
    ) -> None:  # fmt: skip
        self._client, self._url, self._keys, self._deadline_s = client, url.rstrip("/"), keys, deadline_s
        self._session, self._token, self._renewed_s = session, "", 0.0

    def acting_as(self, session: OperatorSession) -> "AdminApi":
        """The same for the operator who is signed in."""
        return AdminApi(self._client, self._url, self._keys, deadline_s=self._deadline_s, session=session)

    def within(self, deadline_s: float) -> "AdminApi":
        """The same, with another deadline of each question."""
        return AdminApi(self._client, self._url, self._keys, deadline_s=deadline_s)

    def sign(self, session: OperatorSession) -> str:
        """The session as a credential for the admin APIs."""
        return sign_session(self._keys, session)

    async def call(
        self, operation: str, /, body: RequestBody = None, *, query: Mapping[str, Any] | None = None,
        key: str | None = None, **path_values: str | int,
    ) -> Any:  # fmt: skip
        """Raises the service's own problem, or `NoAnswer`."""
        found = OPERATIONS[operation]
        path = found.address(path_values)
        row = route(path)
        service = row.service if row else ""
        headers = {"authorization": f"Bearer {self._credential()}"} | ({"idempotency-key": key} if key else {})
        params = {name: value for name, value in (query or {}).items() if value is not None}
        try:
            response = await self._client.request(
                found.method, at_suite(self._url, path), params=params, json=as_json(body), headers=headers,
                timeout=self._deadline_s,
            )  # fmt: skip
            if response.is_error:
                raise from_document(response.status_code, response.content)
            answer = found.read(response.content)
        except httpx.HTTPError as unreachable:
            QUESTIONS.labels(service, "failed").inc()
            raise NoAnswer(f"{service} does not answer: {type(unreachable).__name__}.") from unreachable
        except ValidationError as unexpected:
            QUESTIONS.labels(service, "failed").inc()
            raise UpstreamFailed(f"{service} answered in another form.") from unexpected
        except Problem:
            QUESTIONS.labels(service, "failed").inc()
            raise
        QUESTIONS.labels(service, "answered").inc()
        return answer

    def _credential(self) -> str:
        if self._session is not None:
            return self.sign(self._session)
        now_s = time.time()
        if now_s - self._renewed_s > TOKEN_S / 2:
            itself = OperatorSession(Operator("console", "viewer"), "", int(now_s) + TOKEN_S)
            self._token, self._renewed_s = self.sign(itself), now_s
        return self._token
