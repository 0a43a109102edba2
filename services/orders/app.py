"""The orders service as an app: opens connections, starts the background loops and hands each part what it needs."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from fastapi import FastAPI

from services.orders import internal
from services.orders.admin import events, orders, reports, webhooks
from services.orders.api import orders as api_orders
from services.orders.api import reminders as api_reminders
from services.orders.api import tickets as api_tickets
from services.orders.api.forms import FORMS
from services.orders.api.payment_webhooks import PAYMENT_WEBHOOKS
from services.orders.auth import CustomerAuthenticator
from services.orders.checkout.background_share import REFRESH_S, BackgroundShare
from services.orders.checkout.checkout import Checkout, OrderWriter
from services.orders.checks import own_checks
from services.orders.mail import reminders, smtp
from services.orders.mail.addresses import check_address
from services.orders.mail.compose import MailComposer
from services.orders.mail.dispatcher import MailDispatcher
from services.orders.mail.smtp import MailServer
from services.orders.mail_settings import server_of
from services.orders.pricing.quote import PriceRulesCache, Quoter
from services.orders.providers import open_providers
from services.orders.reports.flow import OrdersFlows
from services.orders.requests import event_refund
from services.orders.settings import Settings
from services.orders.state import State
from services.orders.steps.run import Failpoint, InventoryBatcher, Parts, no_failpoint
from services.orders.store.frames import Frames
from services.orders.store.store import OrderStore
from services.orders.store.webhook_inbox import WebhookInbox
from services.orders.tickets.pdf import PdfRenderer
from services.orders.tickets.show import ShowCache
from services.orders.tuning import DEFAULTS, Tuning
from services.orders.webhooks.dispatcher import Sender, SsrfGuard, WebhookDispatcher
from services.orders.worker import comparison
from services.orders.worker.processor import OrderProcessor
from services.orders.worker.worker import Heartbeat, ProviderClient, Worker
from shared import rpc
from shared.checks.endpoint import Databases
from shared.concurrency.background import Loops
from shared.contracts.inventory import InventoryClient
from shared.http.outgoing import NoDnsResolver, external_http_client
from shared.messaging.log import EventLog
from shared.messaging.open_log import open_log
from shared.messaging.relay import Outbox
from shared.postgres import engine as postgres_engine
from shared.postgres.settings import Waits
from shared.process import clock_offsets
from shared.process.engine_gauges import REFRESH_S as ENGINES_S
from shared.process.engine_gauges import refresh_engine_gauges
from shared.process.load import LOAD_S, Load, PurchaseWork
from shared.process.preconditions import Preconditions
from shared.redis import client as redis_client
from shared.rpc import ServiceClient
from shared.runtime.clock import Clocks
from shared.security.limits import AddressGuessLimiter, Buckets, FanLimit, GuessLimiter
from shared.security.tokens import PassReader
from shared.security.user_jwt import user_jwt_reader
from shared.web.app import EVENT_FILE_MAX_BYTES, create_service

MAIL_INTERVAL_S = 1.0
COUNTED_MAX = 65_536
LINKS_PER_MINUTE, LINKS_BURST = 2, 10  # of one client address


def create_app(
    settings: Settings | None = None, tuning: Tuning = DEFAULTS, *, failpoint: Failpoint = no_failpoint
) -> FastAPI:
    """The orders service. `failpoint` lets a test stop an order's processing between two steps."""
    settings = settings or Settings()
    load = Load("orders")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.deps = state = await _open(stack, settings, tuning, failpoint, load.purchases)
            app.state.databases = Databases(state.redis, state.db)
            app.state.preconditions = Preconditions("orders", settings, state.db, state.redis)
            app.state.warnings = state.store.clocks.warnings
            await app.state.preconditions.require()
            event_log = await stack.enter_async_context(open_log(settings, state.redis))
            loops = await stack.enter_async_context(Loops("orders"))
            _start_loops(loops, state, event_log)
            loops.every(LOAD_S, partial(load.publish, state.redis), name="orders.load")
            yield

    return create_service(
        "orders", settings, title="orders", lifespan=lifespan, load=load, own_checks=partial(own_checks, settings),
        checks=lambda app: app.state.preconditions.checks(),
        fast_routes=[*api_orders.FAST_ROUTES, PAYMENT_WEBHOOKS, *api_tickets.FAST_ROUTES],
        routers=[
            api_reminders.router, orders.router, reports.router, events.router, webhooks.router,
        ],
        internal_api=internal.API, forms=FORMS, body_max_bytes=EVENT_FILE_MAX_BYTES,
    )  # fmt: skip


def _start_loops(loops: Loops, state: State, event_log: EventLog) -> None:
    """Starts the background work of this process."""
    settings, clocks = state.settings, state.store.clocks
    outbox = Outbox(state.db, event_log, "orders", database=settings.postgres_url)
    loops.keep(outbox.run, name="orders.outbox")
    loops.every(REFRESH_S, state.background_share.refresh, name="orders.background_share")
    loops.keep(state.worker.listen, name="orders.listen")
    read_clocks = partial(clock_offsets.read_clocks, clocks, state.db, state.redis)
    loops.every(clock_offsets.REFRESH_S, read_clocks, name="orders.clocks")
    loops.every(ENGINES_S, partial(refresh_engine_gauges, "orders", state.db, state.redis), name="orders.engine_gauges")
    loops.keep(state.webhook_dispatcher.queue.run, name="orders.webhooks")
    poll_s = state.tuning.webhook_poll_interval_s
    loops.every(poll_s, state.webhook_dispatcher.queue.poll, name="orders.webhook_polls")
    loops.every(3600, state.webhook_dispatcher.forget, name="orders.webhooks_forget")
    loops.keep(state.worker.run, name="orders.workers")
    compare = partial(comparison.run, state.store, state.providers)
    loops.every(comparison.INTERVAL_S, compare, name="orders.comparison")
    refund_batch = partial(event_refund.request_next_batch, state.store)
    loops.every(event_refund.INTERVAL_S, refund_batch, name="orders.event_refunds")
    if state.mail_server is not None:
        loops.every(smtp.REFRESH_S, state.mail_server.refresh, name="orders.mail_server")
        composer = MailComposer(state.store, state.inventory, state.pdf_renderer, settings)
        mail = MailDispatcher(state.db, composer, settings, state.tuning, state.mail_server.session)
        loops.every(MAIL_INTERVAL_S, mail.run_once, name="orders.mail")
        consents = partial(reminders.import_consents, state.db, state.inventory, settings)
        loops.every(reminders.CONSENT_POLL_S, consents, name="orders.consents")
        loops.every(3600, mail.forget, name="orders.mail_forget")


async def _open(
    stack: AsyncExitStack, settings: Settings, tuning: Tuning, failpoint: Failpoint, load: PurchaseWork
) -> State:
    """Opens every connection and wires the parts; `stack` closes them again."""
    db = postgres_engine.connect(settings, name="orders", waits=Waits(lock_timeout_ms=tuning.lock_timeout_ms))
    stack.push_async_callback(db.dispose)
    redis = redis_client.connect(settings.redis_url, service="orders")
    stack.push_async_callback(redis.aclose)
    services = await stack.enter_async_context(rpc.client())
    inventory_service = ServiceClient(services, settings.inventory_url, settings.service_keys, name="inventory")
    inventory = await stack.enter_async_context(InventoryBatcher(InventoryClient(inventory_service)))
    store = await stack.enter_async_context(OrderStore(db, Clocks("orders")))
    frames = await stack.enter_async_context(Frames(redis))
    outgoing = external_http_client(connections_max=tuning.in_work_max)
    heartbeat = Heartbeat(tuning.takeover_s)
    providers = open_providers(ProviderClient(await stack.enter_async_context(outgoing), load, heartbeat), settings)
    stack.push_async_callback((shows := ShowCache(store.db)).close)
    parts = Parts(
        store=store, frames=frames, inventory=inventory, providers=providers, settings=settings, shows=shows,
        failpoint=failpoint, tuning=tuning,
    )  # fmt: skip
    worker = Worker(store, OrderProcessor(parts), settings, load=load, heartbeat=heartbeat, tuning=tuning)
    stack.push_async_callback(worker.close)
    webhook_inbox = WebhookInbox(store, worker.in_work, linger_s=tuning.webhook_linger_s)
    stack.push_async_callback(webhook_inbox.close)
    users = await stack.enter_async_context(user_jwt_reader(settings))
    webhook_sender = await _webhook_sender(stack, settings, tuning)
    background_share = BackgroundShare(db)
    price_rules = await stack.enter_async_context(PriceRulesCache(store.db))
    fan_limit = FanLimit(
        per_s=settings.fan_calls_per_s, keys_max=settings.cache_entries_max, shared_by=settings.processes
    )
    wrong_codes = GuessLimiter(
        per_s=tuning.wrong_codes_per_minute / 60, at_once=tuning.wrong_code_burst, shared_by=settings.processes
    )
    writer = await stack.enter_async_context(OrderWriter(db, worker, store.clocks))
    mail_server = _mail_server(settings, tuning)
    flows = OrdersFlows(store.db, tuning.takeover_s)
    stack.push_async_callback(flows.close)
    return State(
        settings=settings, tuning=tuning, db=db, store=store, frames=frames, redis=redis, worker=worker,
        authenticator=CustomerAuthenticator(
            PassReader.of(settings), settings.order_token_keys, users, fan_limit, settings.secure_cookies
        ),
        checkout=Checkout(
            store=store, inventory=inventory, writer=writer, worker=worker, providers=providers,
            capture=settings.captures_at_once, load=load,
            background_share=background_share,
            quoter=Quoter(price_rules, wrong_codes, AddressGuessLimiter(shared_by=settings.processes)),
            order_token_keys=settings.order_token_keys, customer_keys=settings.customer_keys,
            check_address=partial(check_address, mail_server),
        ),
        background_share=background_share, webhook_inbox=webhook_inbox, providers=providers,
        webhook_sender=webhook_sender,
        webhook_dispatcher=WebhookDispatcher(db, webhook_sender, settings, tuning), inventory=inventory,
        pdf_renderer=_pdf_renderer(stack, settings, tuning), price_rules=price_rules, flows=flows,
        mail_server=mail_server, link_limiter=_buckets(LINKS_PER_MINUTE, LINKS_BURST, settings),
        pdf_limiter=_buckets(tuning.prints_per_minute, tuning.prints_burst, settings),
    )  # fmt: skip


def _buckets(per_minute: float, burst: int, settings: Settings) -> Buckets:
    return Buckets(per_s=per_minute / 60, burst=burst, keys_max=COUNTED_MAX, shared_by=settings.processes)


def _mail_server(settings: Settings, tuning: Tuning) -> MailServer | None:
    if settings.smtp_url is None:
        return None
    server = server_of(settings.smtp_url.get_secret_value())
    return MailServer(server, settings.smtp_starttls, tuning.smtp_timeout_s)


def _pdf_renderer(stack: AsyncExitStack, settings: Settings, tuning: Tuning) -> PdfRenderer:
    renderer = PdfRenderer(
        workers=tuning.pdf_workers, waiting_max=tuning.prints_waiting_max, font=settings.print_font,
        cache_max_bytes=tuning.prints_kept_bytes,
    )  # fmt: skip
    stack.callback(renderer.close)
    return renderer


async def _webhook_sender(stack: AsyncExitStack, settings: Settings, tuning: Tuning) -> Sender:
    """Webhooks keep no connection open, and only `SsrfGuard` resolves their host names."""
    most = settings.webhook_workers
    client = await stack.enter_async_context(
        external_http_client(connections_max=most, keep_open=False, resolver=NoDnsResolver())
    )
    names = SsrfGuard(settings.webhook_workers)
    stack.callback(names.close)
    deadline_s, loopback = tuning.webhook_timeout_s, settings.webhooks_to_this_machine
    return Sender(client, deadline_s=deadline_s, loopback=loopback, resolve=names.resolve_public)
