"""The names of `onsale.extend`, from where they are."""

from shared.concurrency.background import Loops
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
from shared.rules.money import format_money
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
    "ChargeDispute",
    "ChargeLimits",
    "ChargeRequest",
    "ChargeStatus",
    "CliCommand",
    "DisputeStatus",
    "ExternalClient",
    "ExternalResponse",
    "FastRoute",
    "Feature",
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
    "SignatureInvalid",
    "Unreachable",
    "Viewer",
    "WebhookEvent",
    "external_http_client",
    "format_money",
    "get_logger",
    "json_answer",
    "now_ms",
    "opened",
    "verify",
]
