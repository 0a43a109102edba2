"""Joins as textbooks describe them: each fan alone takes a number, enters the sorted set and is written to PostgreSQL.

Tuned: a FastAPI endpoint without per-request dependencies, asyncpg without an ORM, prepared statements, a pool of the
best size, `ZADD` and `ZRANK` in one round trip, hiredis, orjson and a direct response.
"""

import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import jwt
import orjson
import redis.asyncio
from fastapi import FastAPI, Response

from bench.baselines.pool import open_pool, read_sql

REDIS_POOL = 128
SECRET = b"a well-known secret for measurements only"
TABLES = read_sql("join_tables")
INSERT = "INSERT INTO textbook.place (event_id, join_seq, holder) VALUES ($1, $2, $3)"


def create_app() -> FastAPI:
    """The textbook's queue service; databases from `BENCH_POSTGRES_URL` (plain form) and `BENCH_REDIS_URL`."""
    postgres_url, redis_url = os.environ["BENCH_POSTGRES_URL"], os.environ["BENCH_REDIS_URL"]
    line = redis.asyncio.Redis.from_url(redis_url, protocol=2, max_connections=REDIS_POOL)
    pool: asyncpg.Pool

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        nonlocal pool
        async with open_pool(postgres_url) as pool:
            await pool.execute(TABLES)
            yield
            await line.aclose()

    app = FastAPI(lifespan=lifespan)

    @app.get("/readyz")
    async def readyz() -> dict[str, bool]:
        return {"ready": True}

    @app.post("/events/{event_id}/queue")
    async def join(event_id: str) -> Response:
        holder = secrets.token_urlsafe(18)
        join_seq = await line.incr(f"textbook:{event_id}:seq")
        async with line.pipeline(transaction=False) as both:
            both.zadd(f"textbook:{event_id}:line", {holder: join_seq})
            both.zrank(f"textbook:{event_id}:line", holder)
            _, rank = await both.execute()
        await pool.execute(INSERT, event_id, join_seq, holder)
        claims = {"evt": event_id, "seq": join_seq, "sub": holder, "iat": int(time.time())}
        body = {
            "queue_token": jwt.encode(claims, SECRET, algorithm="HS256"),
            "join_seq": join_seq,
            "position_in_queue": rank + 1,
            "status": "waiting",
        }
        return Response(orjson.dumps(body), 201, media_type="application/json")

    return app
