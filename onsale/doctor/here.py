"""Checks what the operator's machine can see: the certificate, the data directory and its disk, Prometheus' targets."""

import asyncio
import json
import shutil
import socket
import ssl
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from onsale.data_dir import ADMIN_KEY_FILE, ENGINES_FILE, TARGETS_FILE
from onsale.doctor.findings import Finding
from onsale.local.key_file import KEY_FILE
from shared.checks.capacity import disk_check
from shared.contracts.admin.checks import Check, broken, ok, suspicious
from shared.rules.addresses import ascii_host, is_loopback

HERE = ("here",)
TIMEOUT_S = 5.0
CERTIFICATE_DAYS_MIN = 14


async def check_here(url: str, data_dir: Path) -> list[Finding]:
    """The data directory is checked if a suite of `onsale up` has run in it."""
    checks = [*await asyncio.to_thread(_certificate, url)]
    if (data_dir / ENGINES_FILE).exists():
        usage = shutil.disk_usage(data_dir)
        checks.append(disk_check("Data directory", usage.free, usage.total))
        checks += [*_secret_files(data_dir), *await _targets(data_dir)]
    return [Finding(check, HERE) for check in checks]


def _certificate(url: str) -> list[Check]:
    subject, parts = "Certificate", urlsplit(url)
    host = ascii_host(parts.hostname or "")
    if parts.scheme != "https":
        if is_loopback(host):
            return []
        return [suspicious(subject, f"{host} is reached without HTTPS", "Passwords and passes can be read on the way.")]
    try:
        with (
            socket.create_connection((host, parts.port or 443), timeout=TIMEOUT_S) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host) as tls,
        ):
            ends_s = ssl.cert_time_to_seconds(str((tls.getpeercert() or {})["notAfter"]))
    except ssl.SSLCertVerificationError as invalid:
        return [broken(subject, f"{host}: {invalid.verify_message}", "Browsers refuse it: renew it.")]
    except (OSError, KeyError) as failed:
        return [broken(subject, f"{host}: {type(failed).__name__}", "Is the balancer running, and is it this address?")]
    days = int((ends_s - time.time()) // 86_400)
    if days < CERTIFICATE_DAYS_MIN:
        return [suspicious(subject, f"{host}: ends in {days} days", "Renew it before the sale.")]
    return [ok(subject, f"{host}: good for {days} days")]


def _secret_files(data_dir: Path) -> list[Check]:
    subject = "Secret files"
    files = [data_dir / name for name in (KEY_FILE, ADMIN_KEY_FILE, ENGINES_FILE) if (data_dir / name).exists()]
    if exposed := [str(file) for file in files if file.stat().st_mode & 0o077]:
        advice = f"chmod 600 {' '.join(exposed)}; rotate the keys if other people use this machine."
        return [broken(subject, "other users can read them", advice)]
    return [ok(subject, "readable by their owner only")]


async def _targets(data_dir: Path) -> list[Check]:
    """Each process that Prometheus is to scrape answers with its metrics."""
    subject, file = "Prometheus targets", data_dir / TARGETS_FILE
    try:
        targets = [target for group in json.loads(file.read_text()) for target in group["targets"]]
    except FileNotFoundError:
        return [broken(subject, f"{file} is missing", "Start the suite again: alarms have nothing to see without it.")]
    except (OSError, ValueError, KeyError, TypeError):
        return [broken(subject, f"{file} cannot be read", "Start the suite again.")]
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as client:
        silent = [target for target in targets if not await _has_metrics(client, target)]
    if silent:
        advice = "Alarms do not see that process: is it running? See the log in the data directory."
        return [broken(subject, f"no metrics from {', '.join(silent)}", advice)]
    return [ok(subject, f"{len(targets)} answer with metrics")]


async def _has_metrics(client: httpx.AsyncClient, target: str) -> bool:
    try:
        answer = await client.get(f"http://{target}/metrics")
    except httpx.HTTPError:
        return False
    return answer.is_success and "onsale_" in answer.text
