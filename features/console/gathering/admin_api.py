"""The admin APIs of the other services, asked as an operator who may only view, or used as the one who is signed in."""

import time
from collections.abc import Mapping
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from features.console.metrics import QUESTIONS
from shared.contracts.admin.endpoint import Endpoint
from shared.errors.problems import NoAnswer, Problem, UpstreamFailed, from_document
from shared.security.auth import Operator, OperatorSession, sign_session
from shared.security.tokens import Keyring

Answer = TypeVar("Answer")
TOKEN_S = 60


class AdminApi:
    """Asks one service at a time; each question has a deadline and is counted."""

    def __init__(self, client: httpx.AsyncClient, url: str, keys: Keyring, *, deadline_s: float) -> None:
        self._client, self._url, self._keys, self._deadline_s = client, url.rstrip("/"), keys, deadline_s
        self._token, self._renewed_s = "", 0.0

    async def ask(
        self, service: str, endpoint: Endpoint[Answer], query: Mapping[str, Any] | None = None, /, **path_values: str
    ) -> Answer:
        """Raises the service's own problem, or `NoAnswer`."""
        return await self._send(service, endpoint, path_values, token=self._own_token(), query=query)

    async def act(
        self, service: str, endpoint: Endpoint[Answer], body: Mapping[str, Any], operator: OperatorSession, /,
        **path_values: str,
    ) -> Answer:  # fmt: skip
        """Does this as the operator who is signed in. Raises as `ask` does."""
        return await self._send(service, endpoint, path_values, token=self.sign(operator), body=body)

    def sign(self, session: OperatorSession) -> str:
        """The session as a credential for the admin APIs."""
        return sign_session(self._keys, session)

    async def _send(
        self, service: str, endpoint: Endpoint[Answer], path_values: Mapping[str, str], *, token: str,
        query: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None,
    ) -> Answer:  # fmt: skip
        url = self._url.replace("{service}", service) + endpoint.path.format(**path_values)
        headers = {"authorization": f"Bearer {token}"}
        try:
            response = await self._client.request(
                endpoint.method, url, params=query, json=body, headers=headers, timeout=self._deadline_s
            )
            if response.is_error:
                raise from_document(response.status_code, response.content)
            answer: Answer = TypeAdapter(endpoint.answer).validate_json(response.content)
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

    def _own_token(self) -> str:
        now_s = time.time()
        if now_s - self._renewed_s > TOKEN_S / 2:
            itself = OperatorSession(Operator("console", "viewer"), "", int(now_s) + TOKEN_S)
            self._token, self._renewed_s = self.sign(itself), now_s
        return self._token
