"""The admin APIs of the other services, asked as an operator who may only view."""

import time
from collections.abc import Mapping
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from services.console.metrics import QUESTIONS
from shared.contracts.admin.endpoint import Endpoint
from shared.security.auth import Operator, OperatorSession, sign_session
from shared.security.tokens import Keyring
from shared.web.problems import NoAnswer, Problem, UpstreamFailed, from_document

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
        url = self._url.replace("{service}", service) + endpoint.path.format(**path_values)
        try:
            response = await self._client.get(url, params=query, headers=self._headers(), timeout=self._deadline_s)
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

    def _headers(self) -> dict[str, str]:
        now_s = time.time()
        if now_s - self._renewed_s > TOKEN_S / 2:
            itself = OperatorSession(Operator("console", "viewer"), "", int(now_s) + TOKEN_S)
            self._token, self._renewed_s = sign_session(self._keys, itself), now_s
        return {"authorization": f"Bearer {self._token}"}
