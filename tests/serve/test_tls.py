"""TLS on the API's own socket: handshakes are bounded, and certificates are taken anew."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from support.certificates import CertificatePair, make_certificate
from support.waiting import until
from weir.errors import Misconfigured
from weir.serve.tls import CertificateFiles, certificate_files

from .wire import LIMITS, PATIENT, Site, answer, connected, serving


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[CertificatePair, CertificatePair]:
    folder = tmp_path_factory.mktemp("certificates")
    return make_certificate(folder, "first"), make_certificate(folder, "second")


@pytest.fixture
def files(pairs: tuple[CertificatePair, CertificatePair], tmp_path: Path) -> CertificatePair:
    """A copy of the first pair, which a test may exchange."""
    pair = CertificatePair(certificate=tmp_path / "tls.pem", key=tmp_path / "tls.key")
    put(pairs[0], pair)
    return pair


def put(source: CertificatePair, target: CertificatePair) -> None:
    shutil.copy(source.key, target.key)
    shutil.copy(source.certificate, target.certificate)


def trusting(pair: CertificatePair) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=pair.certificate)


@asynccontextmanager
async def secure(
    port: int, pair: CertificatePair
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting(pair))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_requests_are_answered_over_tls(files: CertificatePair) -> None:
    tls = CertificateFiles(files.certificate, files.key)
    async with serving(PATIENT, tls=tls) as port, secure(port, files) as (reader, writer):
        for size in (3, 70_000):
            writer.write(b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
            assert await answer(reader) == (200, {"bytes": size})
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() is None
        assert writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")


async def test_a_refused_body_still_gets_its_answer(files: CertificatePair) -> None:
    tls = CertificateFiles(files.certificate, files.key)
    limits = replace(PATIENT, max_body_bytes=1_024)
    async with serving(limits, tls=tls) as port, secure(port, files) as (reader, writer):
        writer.write(b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 300_000)
        assert (await answer(reader))[0] == 413


@pytest.mark.parametrize(
    "sent", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"], ids=["nothing", "half", "plain"]
)
async def test_a_handshake_that_does_not_come_is_hung_up_on(files: CertificatePair, sent: bytes) -> None:
    tls = CertificateFiles(files.certificate, files.key)
    async with serving(LIMITS, tls=tls) as port, connected(port) as (reader, writer):
        writer.write(sent)
        async with asyncio.timeout(5):
            # A client that speaks no TLS is sent an alert first.
            assert len(await reader.read()) < 100


async def test_handshakes_take_from_the_budget_of_their_address(files: CertificatePair) -> None:
    tls = CertificateFiles(files.certificate, files.key)
    limits = replace(PATIENT, max_unfinished_per_client=3)
    async with serving(limits, tls=tls) as port:
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        async with asyncio.timeout(10):
            ended = [await reader.read() for reader, _ in waiting[:3]]
        assert ended == [b""] * 3
        assert not any(reader.at_eof() for reader, _ in waiting[3:])
        async with secure(port, files) as (reader, writer):
            writer.write(b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            assert (await answer(reader))[0] == 200
        for _, writer in waiting:
            writer.transport.abort()


async def test_lost_handshakes_leave_no_file_open(files: CertificatePair) -> None:
    tls = CertificateFiles(files.certificate, files.key)
    process = psutil.Process()
    async with serving(PATIENT, tls=tls) as port:
        before = process.num_fds()
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.send(b"no handshake at all")
        await until(lambda: process.num_fds() <= before)


async def test_the_end_does_not_wait_for_a_handshake(files: CertificatePair) -> None:
    tls = CertificateFiles(files.certificate, files.key)
    async with asyncio.timeout(5):
        async with serving(PATIENT, tls=tls) as port:
            before = psutil.Process().num_fds()
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: psutil.Process().num_fds() >= before + 2)
        writer.transport.abort()


async def test_a_new_certificate_is_used_for_new_connections(
    files: CertificatePair, pairs: tuple[CertificatePair, CertificatePair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.serve.tls.RELOAD_S", 0.02)
    tls, site = CertificateFiles(files.certificate, files.key), Site()
    async with serving(PATIENT, site, tls=tls) as port, secure(port, pairs[0]) as (reader, writer):
        put(pairs[1], files)

        async def is_new() -> bool:
            try:
                async with secure(port, pairs[1]):
                    return True
            except ssl.SSLCertVerificationError:
                return False

        await until(is_new)
        writer.write(b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert (await answer(reader))[0] == 200


def test_a_pair_that_does_not_fit_leaves_the_old_one_in_place(
    files: CertificatePair, pairs: tuple[CertificatePair, CertificatePair]
) -> None:
    tls = CertificateFiles(files.certificate, files.key)
    before = tls.context
    shutil.copy(pairs[1].certificate, files.certificate)
    tls.reload()
    assert tls.context is before
    shutil.copy(pairs[1].key, files.key)
    tls.reload()
    assert tls.context is not before


@pytest.mark.parametrize("content", [None, "", "not a key"])
def test_files_that_cannot_be_used_are_one_line(files: CertificatePair, content: str | None) -> None:
    if content is None:
        files.key.unlink()
    else:
        files.key.write_text(content)
    with pytest.raises(Misconfigured, match=r"cannot be used .*WEIR_API__TLS_KEY") as caught:
        CertificateFiles(files.certificate, files.key)
    assert os.linesep not in str(caught.value)


def test_one_of_the_two_settings_is_not_enough(files: CertificatePair) -> None:
    assert certificate_files(None, None) is None
    with pytest.raises(Misconfigured, match="belong together"):
        certificate_files(files.certificate, None)
