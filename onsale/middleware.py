"""ASGI middleware that admits only fans with a pass to a Python web app. Needs httpx and PyJWT, nothing else of Onsale.

A pass is verified here with the waiting room's public keys. A request without a valid pass is decided by the gateway's
forward-auth endpoint; its answer (a redirect, a problem or an admission) becomes the app's. A response of the app with
the header `Onsale-Release: 1` releases the fan's slot before it is sent on.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx
import jwt

log = logging.getLogger("onsale.middleware")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Rejection = tuple[int, list[tuple[bytes, bytes]], bytes]  # status, headers, body
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
LEEWAY_S, KEYS_FRESH_S, FETCH_INTERVAL_S, PASS_MAX_CHARS, RELEASED_MAX = 5, 300, 10, 2048, 50_000
UNAVAILABLE = b'{"type":"/problems/unavailable","title":"The waiting room cannot answer right now.","status":503}'


class PassKeys:
    """The waiting room's public keys, fetched when they are old or a pass names an unknown one, at most every 10 s."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client, self._url = client, url
        self._keys: dict[str, jwt.PyJWK] = {}
        self._tried_s = self._fetched_s = float("-inf")
        self._lock = asyncio.Lock()

    async def key(self, kid: str) -> jwt.PyJWK | None:
        """The key with this id. Keys fetched before stay valid while the gateway is unreachable."""
        if kid not in self._keys or time.monotonic() - self._fetched_s > KEYS_FRESH_S:
            async with self._lock:
                if time.monotonic() - self._tried_s > FETCH_INTERVAL_S:
                    self._tried_s = time.monotonic()
                    await self._fetch()
        return self._keys.get(kid)

    async def _fetch(self) -> None:
        try:
            answer = (await self._client.get(self._url)).raise_for_status().json()
            found = [key for key in answer["keys"] if (key.get("kty"), key.get("crv")) == ("OKP", "Ed25519")]
            self._keys = {key["kid"]: jwt.PyJWK(key, algorithm="EdDSA") for key in found}
            self._fetched_s = time.monotonic()
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError, jwt.PyJWTError) as failed:
            log.warning("keys not fetched from %s: %r", self._url, failed)


class WaitingRoomMiddleware:
    """Wraps an app: `WaitingRoomMiddleware(app, event_id="arena-2026", room="https://tickets.example")`.

    `room` is the gateway's address. The claims of the pass are in `scope["onsale.pass"]`, None for a fan who was
    admitted without one.
    """

    def __init__(self, app: Any, *, event_id: str, room: str, deadline_s: float = 2.0) -> None:
        self._app, self._event_id, self._room = app, event_id, room.rstrip("/")
        self._client = httpx.AsyncClient(timeout=deadline_s, trust_env=False)
        self._keys = PassKeys(self._client, f"{self._room}/.well-known/jwks.json")
        self._released: dict[str, None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            await self.aclose()
            return
        admitted = await self._admit(scope)
        if isinstance(admitted, str):
            await self._app(scope, receive, self._send_and_release(scope, admitted, send) if admitted else send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            status, headers, body = admitted
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def aclose(self) -> None:
        """Closes the connections to the gateway; the end of the app's lifespan does it too."""
        await self._client.aclose()

    async def _admit(self, scope: Scope) -> str | Rejection:
        """The fan's pass, its claims put into the scope; empty for an admission without a pass; else the rejection."""
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        has_handover = b"onsale_handover=" in scope["query_string"]
        scope["onsale.pass"] = None
        host_only = "__Host-" if scope["scheme"] in ("https", "wss") else ""
        for token in () if has_handover else _tokens(fields, f"{host_only}onsale_pass_{self._event_id}"):
            claims = await self._claims(token)
            if claims is not None:
                scope["onsale.pass"] = claims
                return token
        return await self._forward_auth(scope, fields)

    async def _claims(self, token: str) -> dict[str, Any] | None:
        """The claims of a valid pass. The algorithm is fixed here, whatever the token names."""
        try:
            key = await self._keys.key(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                return None
            claims: dict[str, Any] = jwt.decode(
                token, key, algorithms=["EdDSA"], audience=self._event_id, issuer="onsale", leeway=LEEWAY_S,
                options={"require": ["exp", "nbf", "aud", "iss", "sub", "jti"]},
            )  # fmt: skip
        except (jwt.PyJWTError, ValueError):
            return None
        return claims if claims.get("typ") == "onsale-pass" and claims["jti"] not in self._released else None

    async def _forward_auth(self, scope: Scope, fields: dict[str, str]) -> str | Rejection:
        """The gateway's decision: empty for an admission, else the rejection."""
        raw = scope.get("raw_path") or scope["path"].encode()
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        scheme: str = scope["scheme"].replace("ws", "http", 1)
        kept = ("cookie", "authorization", "accept", "x-requested-with", "origin", "access-control-request-method")
        head = {name: value for name, value in fields.items() if name in kept or name.startswith("sec-fetch-")}
        head |= {
            "x-forwarded-method": scope.get("method", "GET"), "x-forwarded-uri": (raw + query).decode("latin-1"),
            "x-forwarded-host": fields.get("host", ""), "x-forwarded-proto": scheme,
            "x-forwarded-for": str((scope.get("client") or ("",))[0]),
        }  # fmt: skip
        try:
            url = f"{self._room}/gate/traefik/check"
            answer = await self._client.get(url, params={"event": self._event_id}, headers=head)
        except httpx.HTTPError as unreachable:
            log.warning("the gateway does not answer: %r", unreachable)
            return 503, [(b"content-type", b"application/problem+json"), (b"retry-after", b"5")], UNAVAILABLE
        if answer.status_code == 200:
            return ""
        passed_on = (b"content-type", b"location", b"set-cookie", b"cache-control", b"retry-after")
        headers = [(name.lower(), value) for name, value in answer.headers.raw if name.lower() in passed_on]
        return answer.status_code, [*headers, (b"content-length", b"%d" % len(answer.content))], answer.content

    def _send_and_release(self, scope: Scope, token: str, send: Send) -> Send:
        """`send` that removes the release header from a response and releases the slot if it asks for that."""

        async def send_message(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                release = [value for name, value in message["headers"] if name.lower() == b"onsale-release"]
                rest = [(name, value) for name, value in message["headers"] if name.lower() != b"onsale-release"]
                message = {**message, "headers": rest}
                if release == [b"1"]:
                    await self._release(token, scope["onsale.pass"]["jti"])
            await send(message)

        return send_message

    async def _release(self, token: str, jti: str) -> None:
        """Releases the slot and refuses the pass from now on. If this fails, the slot is free when the pass ends."""
        try:
            url, head = f"{self._room}/gate/release", {"authorization": f"Bearer {token}"}
            answer = await self._client.post(url, params={"event": self._event_id}, headers=head)
            if answer.status_code == 200 and answer.json()["status"] != "admitted":
                self._released[jti] = None
                if len(self._released) > RELEASED_MAX:
                    del self._released[next(iter(self._released))]
            elif answer.status_code != 200:
                log.warning("the slot of pass %s was not released: %s", jti, answer.status_code)
        except (httpx.HTTPError, ValueError, KeyError) as failed:
            log.warning("the slot of pass %s was not released: %r", jti, failed)


def _tokens(fields: dict[str, str], cookie: str) -> list[str]:
    """Tokens that may be a pass: our cookie, then the Bearer token, which may also be the app's own."""
    pairs = (part.strip().partition("=") for part in fields.get("cookie", "").split(";"))
    from_cookie = next((value for name, _, value in pairs if name == cookie), "")
    scheme, _, bearer = fields.get("authorization", "").partition(" ")
    tokens = [from_cookie, bearer if scheme.lower() == "bearer" else ""]
    return [token for token in tokens if 0 < len(token) <= PASS_MAX_CHARS]
