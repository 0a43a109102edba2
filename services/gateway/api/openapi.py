"""OpenAPI of the fast routes, which FastAPI does not know; added to the same document."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from services.gateway.api.queue import QUEUE_PATH
from services.gateway.api.schemas import (
    ChallengeAnswer,
    JoinBody,
    JoinedAnswer,
    LineAnswer,
    PassAnswer,
    StatusAnswer,
)

REF = "#/components/schemas/{model}"
EVENT = {"name": "event_id", "in": "path", "required": True, "schema": {"type": "string"}}
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 22, "maxLength": 128},
    "description": "A UUID or at least 22 random characters of your own, kept secret. Joining again with it returns "
    "the same place. Never take one from a link. In a browser it counts together with the cookie `onsale_browser`.",
}
PROOF_OF_WORK = {
    "name": "Onsale-Proof-Of-Work",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 2048},
    "description": "Base64 of ALTCHA's `{challenge, solution}`, if the room requires it; good for one place.",
}
CREDENTIAL: list[dict[str, list[str]]] = [{"queueToken": []}, {"queueCookie": []}, {"userJwt": []}]


def document_fast_routes(app: FastAPI) -> None:
    """Adds the fast routes to `/openapi.json`."""
    framework = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = framework()
            components = document.setdefault("components", {})
            components.setdefault("schemas", {}).update(_schemas())
            components["securitySchemes"] = {
                "queueToken": {"type": "http", "scheme": "bearer"},
                "userJwt": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "queueCookie": {"type": "apiKey", "in": "cookie", "name": "onsale_queue_{event_id}"},
            }
            document["paths"].update(_paths())
        return framework()

    app.openapi = openapi  # type: ignore[method-assign]


def _schemas() -> dict[str, Any]:
    models = (JoinBody, JoinedAnswer, ChallengeAnswer, StatusAnswer, LineAnswer, PassAnswer)
    _, document = models_json_schema([(model, "serialization") for model in models], ref_template=REF)
    schemas: dict[str, Any] = document["$defs"]
    return schemas


def _paths() -> dict[str, Any]:
    join = _call("Join the line", {201: "A new place", 200: "The place this fan has already"}, JoinedAnswer,
                 refusals={400: "Malformed key", 401: "Only signed-in fans may join", 403: "Unknown code",
                           409: "Code used up", 410: "Closed or sold out", 428: "Solve the challenge first",
                           429: "The line is full, or too many from one address, or too many wrong codes",
                           })  # fmt: skip
    join["parameters"] = [IDEMPOTENCY_KEY, PROOF_OF_WORK]
    join["requestBody"] = {"required": False, "content": _json(JoinBody)}
    join["security"] = [{}, *CREDENTIAL]
    challenge = _call("Get a proof-of-work challenge", {200: "ALTCHA's challenge", 204: "None is required"},
                      ChallengeAnswer)  # fmt: skip
    challenge["parameters"], challenge["security"] = [IDEMPOTENCY_KEY], [{}, *CREDENTIAL]
    line = _call("Get the public state of the waiting room", {200: "The line", 304: "Unchanged"}, LineAnswer)
    leave = _call("Leave the line", {204: "Left"}, None)
    status = _call("Get the status of a place", {200: "The status"}, StatusAnswer, refusals={410: "The room was reset"})
    claim = _call("Claim the pass", {200: "Admitted"}, PassAnswer,
                  refusals={409: "Not called yet", 410: "This place has ended"})  # fmt: skip
    for owned in (leave, status, claim):
        owned["security"] = CREDENTIAL
        owned["responses"]["401"] = {"description": "No credential, or not a valid one"}
        owned["responses"]["429"] = {"description": "Polled far more often than `poll_after_ms` says"}
    return {
        QUEUE_PATH: {"parameters": [EVENT], "post": join, "get": line, "delete": leave},
        f"{QUEUE_PATH}/challenge": {"parameters": [EVENT], "get": challenge},
        f"{QUEUE_PATH}/status": {"parameters": [EVENT], "get": status},
        f"{QUEUE_PATH}/pass": {"parameters": [EVENT], "post": claim},
    }


def _call(
    summary: str, answers: dict[int, str], model: type[BaseModel] | None, *, refusals: dict[int, str] | None = None
) -> dict[str, Any]:
    responses: dict[str, Any] = {str(status): {"description": words} for status, words in answers.items()}
    for status in ("200", "201"):
        if status in responses and model is not None:
            responses[status]["content"] = _json(model)
    for code, words in {404: "Unknown event", **(refusals or {})}.items():
        responses[str(code)] = {"description": words}
    return {"tags": ["line"], "summary": summary, "responses": responses}


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(model=model.__name__)}}}
