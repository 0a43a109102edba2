"""Orders as an app: opens every connection, starts the workers, and hands each room what it needs."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from fastapi import FastAPI

from services.orders import internal
from services.orders.admin import charges, commands, events, orders, promo_codes, support, tickets
from services.orders.api import orders as api_orders
from services.orders.api import tickets as api_tickets
from services.orders.api.auth import CustomerAuthenticator
from services.orders.api.create_order import PLACE
from services.orders.api.openapi import document_hot_calls
from services.orders.api.read_order import LOOK
from services.orders.checkout.background_share import REFRESH_S, BackgroundShare
from services.orders.checkout.checkout import Checkout
from services.orders.checkout.create_order import OrderWriter
from services.orders.checkout.idempotency import Prefetch
from services.orders.checkout.inventory_client import InventoryBatcher
from services.orders.mail import reminders
from services.orders.mail.compose import MailComposer
from services.orders.mail.dispatcher import MailDispatcher
from services.orders.mail.smtp import server_of, session
from services.orders.order.repository import OrderRepository
from services.orders.order.view import FrameRepublisher
from services.orders.payments import open_providers
from services.orders.payments.charge import Failpoint, no_failpoint
from services.orders.payments.provider import Provider
from services.orders.payments.webhook_inbox import WEBHOOK, WebhookInbox
from services.orders.pricing.quote import Quoter
from services.orders.pricing.rules_cache import PriceRulesCache
from services.orders.processing.job_queue import JobQueue
from services.orders.processing.processor import OrderProcessor
from services.orders.processing.worker_pool import InlineProcessor, WorkerPool
from services.orders.refunds import event_refunds
from services.orders.settings import Settings
from services.orders.state import State
from services.orders.tables import outbox, outbox_lease
from services.orders.tickets.pdf import PdfRenderer
from services.orders.webhooks import admin as hooks_admin
from services.orders.webhooks.address_guard import SsrfGuard
from services.orders.webhooks.dispatcher import WebhookDispatcher
from services.orders.webhooks.sender import Sender
from shared.contracts.frames import FRAME_REPEAT_S
from shared.contracts.inventory import InventoryClient
from shared.messaging.open_log import open_log
from shared.messaging.outbox import Relay
from shared.messaging.republish import Republisher
from shared.postgres import engine as postgres_engine
from shared.redis import client as redis_client
from shared.rpc import client as rpc_client
from shared.rpc.client import ServiceClient
from shared.rpc.outgoing import NoNames, outgoing
from shared.runtime.background import Loops
from shared.runtime.clock_offsets import Clocks
from shared.runtime.load_meter import LoadMeter
from shared.runtime.preconditions import Preconditions
from shared.security.guess_limiter import WrongCodes, WrongCodesOfAddresses
from shared.security.token_buckets import Buckets
from shared.security.tokens import PassReader
from shared.security.user_jwt import signed_in
from shared.web import api_document
from shared.web.app import Checks, create_service

MAIL_TURN_S = 1.0
PRINTS_COUNTED_MAX = 65_536


def create_app(settings: Settings | None = None, *, failpoint: Failpoint = no_failpoint) -> FastAPI:
    """The orders service. `failpoint` lets a test stop the cashier between two steps."""
    settings = settings or Settings()
    meter = LoadMeter("orders")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.deps = state = await _open(stack, settings, failpoint)
            app.state.ground = Preconditions("orders", settings, state.db, state.redis)
            app.state.warnings = state.book.clocks.warnings
            await app.state.ground.refuse_unfit()
            event_log = await stack.enter_async_context(open_log(settings, state.redis))
            relay = Relay(state.db, event_log, outbox, outbox_lease)
            repeater = FrameRepublisher(state.book.db, state.redis)
            loops = await stack.enter_async_context(Loops())
            loops.keep(relay.run, name="orders.relay")
            loops.every(1.0, Republisher(state.db, event_log, outbox).look, name="orders.log")
            loops.every(3600, relay.forget, name="orders.relay_forget")
            loops.every(FRAME_REPEAT_S, repeater.turn, name="orders.frames")
            show_load = partial(meter.show, state.redis, state.db)
            loops.every(settings.load_interval_ms / 1000, show_load, name="orders.load")
            loops.every(REFRESH_S, state.shares.refresh, name="orders.shares")
            loops.keep(lambda: state.jobs.listen(state.workers.wake), name="orders.jobs")
            loops.every(1.0, partial(state.book.clocks.look, state.db, state.redis), name="orders.clocks")
            loops.keep(state.couriers.run, name="orders.hooks")
            loops.every(3600, state.couriers.forget, name="orders.hooks_forget")
            loops.keep(state.workers.run, name="orders.workers")
            loops.every(settings.lease_s / 3, state.workers.renew, name="orders.leases")
            loops.every(event_refunds.TURN_S, event_refunds.EventRefunds(state.db).turn, name="orders.event_refunds")
            if settings.smtp_url is not None:
                postman = _postman(state, settings.smtp_url.get_secret_value())
                loops.every(MAIL_TURN_S, postman.turn, name="orders.mail")
                taker = reminders.ConsentImporter(state.db, state.stock, settings)
                loops.every(reminders.TURN_S, taker.turn, name="orders.consents")
                loops.every(3600, postman.forget, name="orders.mail_forget")
            yield

    app = create_service(
        "orders", settings, title="orders", lifespan=lifespan, hot_routes=[PLACE, LOOK, WEBHOOK], checks=_checks,
        routers=[
            api_orders.router, api_tickets.router, reminders.router, orders.router, commands.router, support.router,
            charges.router, events.router, hooks_admin.router, promo_codes.router, tickets.router,
        ],
        internal_routers=[internal.router], meter=meter,
    )  # fmt: skip
    app.state.admin_keys = settings.admin_keys
    document_hot_calls(app)
    api_document.complete(app)
    return app


async def _open(stack: AsyncExitStack, settings: Settings, failpoint: Failpoint) -> State:
    db = postgres_engine.connect(settings, name="orders", by_index=True)
    stack.push_async_callback(db.dispose)
    cache = redis_client.connect(settings.redis_url)
    stack.push_async_callback(cache.aclose)
    neighbours = await stack.enter_async_context(rpc_client.client())
    inventory = InventoryClient(
        ServiceClient(neighbours, settings.inventory_url, settings.service_keys, name="inventory")
    )
    stock = await stack.enter_async_context(InventoryBatcher(inventory))
    book = await stack.enter_async_context(OrderRepository(db, cache, Clocks("orders")))
    providers = await _providers(stack, settings)
    cashier = OrderProcessor(book=book, stock=stock, providers=providers, settings=settings, failpoint=failpoint)
    jobs = JobQueue(settings, accept_s=settings.job_accept_s)
    workers = WorkerPool(book.db, cashier, settings)
    inline = InlineProcessor(book.db, workers, settings)
    placing = OrderWriter(db, jobs, inline, capture=settings.captures_at_once)
    stack.push_async_callback(placing.close)
    inbox = WebhookInbox(book.db, workers.wake)
    stack.push_async_callback(inbox.close)
    users = await stack.enter_async_context(signed_in(settings))
    passes = PassReader(settings.pass_public_keys, seal=settings.service_keys)
    callers = CustomerAuthenticator(passes, settings.order_token_keys, users, settings.secure_cookies)
    keys = settings.order_token_keys, settings.customer_keys
    shares = BackgroundShare(db)
    prices = await stack.enter_async_context(PriceRulesCache(book.db))
    wrong = WrongCodes(per_s=settings.wrong_codes_per_minute / 60, at_once=settings.wrong_code_burst)
    quoting = Quoter(prices, wrong, WrongCodesOfAddresses(settings))
    priors = Prefetch(db, stock)
    stack.push_async_callback(priors.close)
    checkout = Checkout(db, book, priors, stock, placing, providers, inline, shares, quoting, *keys)
    sender = await _sender(stack, settings)
    printer = PdfRenderer(
        at_once=settings.pdf_workers, waiting_max=settings.prints_waiting_max, font=settings.print_font,
        kept_bytes=settings.prints_kept_bytes,
    )  # fmt: skip
    stack.callback(printer.close)
    return State(
        settings=settings, db=db, book=book, redis=cache, callers=callers, checkout=checkout, workers=workers,
        inline=inline, shares=shares, jobs=jobs, inbox=inbox, providers=providers, sender=sender,
        couriers=WebhookDispatcher(db, sender, settings), stock=stock, printer=printer,
        prices=prices,
        prints=Buckets(per_s=settings.prints_per_minute / 60, burst=settings.prints_burst, keys_max=PRINTS_COUNTED_MAX),
    )  # fmt: skip


def _postman(state: State, smtp_url: str) -> MailDispatcher:
    settings = state.settings
    connect = partial(session, server_of(smtp_url), starttls=settings.smtp_starttls, timeout_s=settings.smtp_timeout_s)
    return MailDispatcher(state.db, MailComposer(state.book, state.stock, state.printer, settings), settings, connect)


async def _providers(stack: AsyncExitStack, settings: Settings) -> dict[str, Provider]:
    client = await stack.enter_async_context(outgoing(connections_max=settings.provider_connections_max))
    return open_providers(client, settings)


async def _sender(stack: AsyncExitStack, settings: Settings) -> Sender:
    """Nothing is kept open between webhooks, and no name is resolved but by `SsrfGuard`."""
    most = settings.webhook_workers
    client = await stack.enter_async_context(outgoing(connections_max=most, keep_open=False, resolver=NoNames()))
    names = SsrfGuard(settings.webhook_workers)
    stack.callback(names.close)
    deadline_s, loopback = settings.webhook_timeout_s, settings.webhook_allow_loopback
    return Sender(client, deadline_s=deadline_s, loopback=loopback, resolve=names.resolve_public)


def _checks(app: FastAPI) -> Checks:
    ground: Preconditions = app.state.ground
    return ground.checks()
