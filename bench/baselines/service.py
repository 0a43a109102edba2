"""What the textbook services share: `/readyz`, a pool of PostgreSQL connections, and the check of a pass.

The baselines' pool of PostgreSQL connections, tuned alike: a fixed size, and no reset query on release.
"""

import base64
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fastapi import FastAPI, HTTPException

CONNECTIONS = 32
SQL = Path(__file__).parent / "sql"


def open_pool(postgres_url: str) -> Any:
    """A pool to enter. asyncpg would otherwise reset a connection's session after every use, in a round trip."""
    return asyncpg.create_pool(postgres_url, min_size=CONNECTIONS, max_size=CONNECTIONS, reset=_reset_nothing)


def read_sql(name: str) -> str:
    """The statements of `sql/<name>.sql`."""
    return (SQL / f"{name}.sql").read_text()


async def _reset_nothing(_: Any) -> None:
    """The baselines change no session settings, so there is nothing to reset."""


Claims = dict[str, Any]
LOCK = "SELECT pg_advisory_xact_lock(1)"


def service(tables: str = "", running: Callable[[Any], AbstractAsyncContextManager[None]] | None = None) -> FastAPI:
    """An app that answers `/readyz`. With `tables` it has these (of `sql/<tables>.sql`) in `BENCH_POSTGRES_URL` (plain
    form) and the pool in `app.state.pool`, which `running` may use while the app runs.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if not tables:
            yield
            return
        pool: asyncpg.Pool
        async with open_pool(os.environ["BENCH_POSTGRES_URL"]) as pool:
            await pool.execute(f"BEGIN; {LOCK}; {read_sql(tables)}; COMMIT")  # each process of several
            app.state.pool = pool
            if running is None:
                yield
            else:
                async with running(pool):
                    yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/readyz")
    async def readyz() -> dict[str, bool]:
        return {"ready": True}

    return app


def pass_verifier() -> Callable[[str, str | None], Claims]:
    """Verifies a pass for an event, or for any. `BENCH_PASS_PUBLIC_KEY` is the base64 of an Ed25519 public key."""
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(os.environ["BENCH_PASS_PUBLIC_KEY"]))

    def verify(authorization: str, event_id: str | None) -> Claims:
        token, options = authorization.removeprefix("Bearer "), {"verify_aud": event_id is not None}
        try:
            return dict(jwt.decode(token, key, ["EdDSA"], audience=event_id, options=options))  # type: ignore[arg-type]
        except jwt.PyJWTError as refused:
            raise HTTPException(401, "This pass is not valid.") from refused

    return verify
