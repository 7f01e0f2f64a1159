"""What may be reached, decided on the resolved address. Only loopback is ever dialled here."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbound.receiver import plain, receiving
from weir.errors import InvalidInput
from weir.outbound.address_guard import AddressRefused, GuardPolicy, check_url, guarded_client
from weir.outbound.addresses import may_reach, parse_networks

LOOPBACK = GuardPolicy(allowed=parse_networks(["127.0.0.0/8"]))
STRICT = GuardPolicy()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "::",
        "::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:a9fe:a9fe::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "::127.0.0.1",
        "5f00::1",
        "not-an-address",
    ],
)
def test_an_address_that_is_not_public_is_refused(address):
    assert not may_reach(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946"])
def test_a_public_address_is_reached(address):
    assert may_reach(address)


def test_a_subnet_can_be_allowed_also_when_it_comes_wrapped():
    allowed = parse_networks(["10.0.0.0/8"])
    assert may_reach("10.1.1.1", allowed=allowed)
    assert may_reach("::ffff:10.1.1.1", allowed=allowed)
    assert not may_reach("192.168.1.1", allowed=allowed)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.com/",
        "http://",
        "http://user:secret@example.com/",
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://0x7f.0.0.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::1/",
        "http://example.com:99999/",
        "https://example.com:22/",
        "gopher://example.com",
    ],
)
def test_a_url_that_could_never_be_delivered_is_refused_at_once(url):
    with pytest.raises(AddressRefused):
        check_url(url, policy=GuardPolicy(ports=frozenset({80, 443})))


@given(st.text(max_size=60))
def test_no_text_breaks_the_url_check(text):
    with contextlib.suppress(InvalidInput):
        check_url(text, policy=STRICT)


def test_a_refused_address_names_the_setting_that_allows_it():
    with pytest.raises(AddressRefused, match=r"not a public address; .*`WEIR_WORKER__ALLOWED_SUBNETS`"):
        check_url("http://127.0.0.1/", policy=STRICT)


async def test_a_name_without_an_address_is_called_that():
    async def nowhere(host: str, port: int) -> list[str]:
        return []

    async with guarded_client(STRICT, resolver=nowhere) as client:
        with pytest.raises(AddressRefused, match="has no address; check its name"):
            await client.post("http://nowhere.example/")


async def test_a_name_that_resolves_to_a_private_address_is_refused_on_connecting():
    async def rebinding(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with receiving() as receiver, guarded_client(STRICT, resolver=rebinding) as client:
        with pytest.raises(AddressRefused, match=r"not public; .*`WEIR_WORKER__ALLOWED_SUBNETS`"):
            await client.post(f"http://innocent.example:{receiver.port}/")
    assert receiver.requests == []


async def test_one_private_address_among_public_ones_is_enough_to_refuse():
    async def mixed(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    async with guarded_client(STRICT, resolver=mixed) as client:
        with pytest.raises(AddressRefused, match=r"10\.0\.0\.1"):
            await client.post("http://two-faced.example/")


async def test_the_connection_goes_to_the_address_that_was_checked():
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    async def changing(host: str, port: int) -> list[str]:
        return next(answers)

    async with receiving() as receiver, guarded_client(LOOPBACK, resolver=changing) as client:
        response = await client.post(f"http://service.example:{receiver.port}/")
    assert response.status_code == 200
    assert receiver.requests[0][0]["host"] == f"service.example:{receiver.port}"


async def test_a_redirect_is_not_followed():
    async with receiving() as receiver, guarded_client(LOOPBACK) as client:
        receiver.answer = plain(301, location="http://127.0.0.1:1/")
        response = await client.post(receiver.url)
    assert response.status_code == 301
    assert len(receiver.requests) == 1
