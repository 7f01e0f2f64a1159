"""Sends one mail. The server's address is checked on connecting; the outcome says whether to try again."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from contextlib import closing, suppress
from email.message import EmailMessage

import aiosmtplib

from weir.alerts.alert_channels import AlertChannel
from weir.alerts.channel_kinds import Tls
from weir.outbound.address_guard import GuardPolicy, Resolver, resolve
from weir.outbound.addresses import may_reach, refusal
from weir.outbound.delivery import DeliveryOutcome, DeliveryVerdict

# The mail is accepted before QUIT, so a server that does not answer it is not waited for.
_QUIT_TIMEOUT_S = 1.0


async def send_mail(
    channel: AlertChannel,
    *,
    subject: str,
    text: str,
    message_id: str,
    policy: GuardPolicy,
    timeout_s: float,
    resolver: Resolver = resolve,
    context: ssl.SSLContext | None = None,
) -> DeliveryOutcome:
    """Send one mail. A failure of the server becomes an outcome, not an exception."""
    started = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            await _send(
                channel,
                _message(channel, subject=subject, text=text, message_id=message_id),
                policy=policy,
                resolver=resolver,
                context=context,
            )
    except _Refused as error:
        return _outcome(DeliveryVerdict.REFUSED, started, error=str(error))
    except aiosmtplib.SMTPResponseException as error:
        # In SMTP a 4xx is temporary and a 5xx is permanent.
        permanent = 500 <= error.code < 600
        verdict = DeliveryVerdict.REFUSED if permanent else DeliveryVerdict.RETRY
        return _outcome(
            verdict, started, status=error.code, error=f"the mail server said {error.message:.300}"
        )
    except aiosmtplib.SMTPRecipientsRefused as error:
        codes = [one.code for one in error.recipients]
        verdict = DeliveryVerdict.REFUSED if all(code >= 500 for code in codes) else DeliveryVerdict.RETRY
        return _outcome(verdict, started, status=codes[0], error="the mail server refused the recipients")
    except (aiosmtplib.SMTPException, OSError, ssl.SSLError, ValueError) as error:
        return _outcome(DeliveryVerdict.RETRY, started, error=f"{type(error).__name__}: {error}"[:500])
    return _outcome(DeliveryVerdict.DELIVERED, started, status=250)


class _Refused(Exception):
    """The server is not one that Weir may reach."""


async def _send(
    channel: AlertChannel,
    message: EmailMessage,
    *,
    policy: GuardPolicy,
    resolver: Resolver,
    context: ssl.SSLContext | None,
) -> None:
    config = channel.config
    client = aiosmtplib.SMTP(
        hostname=config["host"],
        sock=await _connect(config["host"], config["port"], policy=policy, resolver=resolver),
        use_tls=config["tls"] == Tls.WHOLE,
        start_tls=config["tls"] == Tls.START,
        tls_context=context,
        timeout=None,  # `send_mail` bounds all commands together.
    )
    # Not `async with client`: after a timeout it would send QUIT and wait for an answer again.
    with closing(client):
        await client.connect()
        if "username" in config:
            await client.login(config["username"], config.get("password", ""))
        refused, _ = await client.send_message(message, sender=config["from"], recipients=list(config["to"]))
        # The others got the mail. A retry sends it to them again, but nobody misses an alert.
        if refused:
            raise aiosmtplib.SMTPException(f"{len(refused)} of the recipients were refused")
        with suppress(aiosmtplib.SMTPException):
            await client.quit(timeout=_QUIT_TIMEOUT_S)


async def _connect(host: str, port: int, *, policy: GuardPolicy, resolver: Resolver) -> socket.socket:
    """Connect to an address that was checked: a second look-up of the name could give another one."""
    addresses = await resolver(host, port)
    refused = [one for one in addresses if not may_reach(one, allowed=policy.allowed)]
    if refused or not addresses:
        raise _Refused(refusal(host, refused))
    family = socket.AF_INET6 if ":" in addresses[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (addresses[0], port))
    except BaseException:
        sock.close()
        raise
    return sock


def _message(channel: AlertChannel, *, subject: str, text: str, message_id: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = channel.config["from"]
    message["To"] = ", ".join(channel.config["to"])
    message["Subject"] = subject
    message["Message-ID"] = f"<{message_id}@weir>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text)
    return message


def _outcome(
    verdict: DeliveryVerdict, started: float, *, status: int | None = None, error: str | None = None
) -> DeliveryOutcome:
    duration_ms = int((time.monotonic() - started) * 1_000)
    return DeliveryOutcome(verdict=verdict, duration_ms=duration_ms, status=status, error=error)
