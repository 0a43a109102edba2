"""The names of `onsale.extend`, from where they are."""

from shared.concurrency.background import Loops
from shared.contracts.admin.checks import Check, broken, ok, suspicious
from shared.contracts.fields import Body
from shared.contracts.file_parts import GuardedChange, LeftOut, RoomRules, part_of
from shared.errors.problems import Problem
from shared.features import BadFeature, CliCommand, Feature, PaymentProvider
from shared.http.outgoing import ExternalClient, ExternalResponse, NotReached, ResponseLost, external_http_client
from shared.payment_provider import (
    AlreadySucceeded,
    ChargeDispute,
    ChargeLimits,
    ChargeRequest,
    ChargeStatus,
    DisputeStatus,
    NotSent,
    OutcomeUnknown,
    Provider,
    ProviderCharge,
    ProviderRejected,
    ProviderTimeout,
    RateLimited,
    SignatureInvalid,
    Unreachable,
    WebhookEvent,
    verify,
)
from shared.rules.currencies import format_money
from shared.runtime.clock import now_ms
from shared.runtime.logging import get_logger
from shared.security.auth import AnAdmin, AnOperator, Operator, Viewer
from shared.web.answers import Answer, json_answer
from shared.web.fast_routes import FastRoute
from shared.web.parts import Part, opened
from shared.web.request import Request

__all__ = [
    "AlreadySucceeded",
    "AnAdmin",
    "AnOperator",
    "Answer",
    "BadFeature",
    "Body",
    "ChargeDispute",
    "ChargeLimits",
    "ChargeRequest",
    "ChargeStatus",
    "Check",
    "CliCommand",
    "DisputeStatus",
    "ExternalClient",
    "ExternalResponse",
    "FastRoute",
    "Feature",
    "GuardedChange",
    "LeftOut",
    "Loops",
    "NotReached",
    "NotSent",
    "Operator",
    "OutcomeUnknown",
    "Part",
    "PaymentProvider",
    "Problem",
    "Provider",
    "ProviderCharge",
    "ProviderRejected",
    "ProviderTimeout",
    "RateLimited",
    "Request",
    "ResponseLost",
    "RoomRules",
    "SignatureInvalid",
    "Unreachable",
    "Viewer",
    "WebhookEvent",
    "broken",
    "external_http_client",
    "format_money",
    "get_logger",
    "json_answer",
    "now_ms",
    "ok",
    "opened",
    "part_of",
    "suspicious",
    "verify",
]
