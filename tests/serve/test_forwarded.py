"""Behind a proxy: its word on who asked counts only if it is trusted."""

from __future__ import annotations

import pytest

from weir.errors import Misconfigured
from weir.serve.forwarded import TrustedProxies
from weir.settings import load_settings

from .wire import PATIENT, Site, answer, connected, serving

PROXIES = TrustedProxies(["10.0.0.0/8", "2001:db8:1::/48"])


@pytest.mark.parametrize(
    ("lines", "client"),
    [
        (["192.0.2.1"], "192.0.2.1"),
        (["192.0.2.1, 10.0.0.7"], "192.0.2.1"),
        (["203.0.113.9, 192.0.2.1"], "192.0.2.1"),
        (["203.0.113.9", "192.0.2.1, 10.1.2.3"], "192.0.2.1"),
        (["10.0.0.1, 10.0.0.2"], "10.0.0.1"),
        (["192.0.2.1:4711"], "192.0.2.1"),
        (["[2001:db8:2::1]:80, 2001:db8:1::5"], "2001:db8:2::1"),
        (["::ffff:192.0.2.1"], "192.0.2.1"),
        (["192.0.2.1, unknown"], None),
        (["<script>"], None),
        ([], None),
    ],
)
def test_the_client_is_the_last_address_that_is_not_a_proxy(lines: list[str], client: str | None) -> None:
    assert PROXIES.client([(b"x-forwarded-for", line.encode()) for line in lines]) == client


@pytest.mark.parametrize(("value", "scheme"), [("https", "https"), ("http, HTTPS", "https"), ("ftp", None)])
def test_the_scheme_is_that_of_the_last_proxy(value: str, scheme: str | None) -> None:
    assert PROXIES.scheme([(b"x-forwarded-proto", value.encode())]) == scheme


@pytest.mark.parametrize(
    ("trusted", "seen"), [(["127.0.0.1"], ("192.0.2.1", "https")), (["10.0.0.0/8"], ("127.0.0.1", "http"))]
)
async def test_only_a_trusted_proxy_is_believed(trusted: list[str], seen: tuple[str, str]) -> None:
    site = Site()
    async with (
        serving(PATIENT, site, proxies=TrustedProxies(trusted)) as port,
        connected(port) as (reader, writer),
    ):
        writer.write(
            b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
            b"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n\r\n"
        )
        assert (await answer(reader))[0] == 200
    assert site.seen_as == seen


def test_a_proxy_that_is_not_an_address_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_API__TRUSTED_PROXIES", '["proxy.example"]')
    with pytest.raises(Misconfigured, match="expected an address or a subnet"):
        load_settings()
