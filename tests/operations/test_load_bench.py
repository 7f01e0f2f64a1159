"""The generator of the load bench reads answers as they come, whatever stands last in them."""

from __future__ import annotations

import asyncio

from benches.load_traffic import TIMED_OUT, Generator, header

HEAD = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\nretry-after: 7\r\n\r\n"


def test_a_header_is_found_where_it_stands_last() -> None:
    assert header(HEAD + b"{}", b"retry-after") == b"7"
    assert header(HEAD + b"{}", b"content-length") == b"2"
    assert header(HEAD + b"{}", b"location") is None


async def test_answers_are_counted_and_silence_is_a_timeout() -> None:
    served = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        try:
            while await reader.readexactly(4):
                served += 1
                if served % 2:
                    writer.write(HEAD + b"{}")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    generator = Generator(
        [server.sockets[0].getsockname()[1]],
        lambda *_: b"PUSH",
        producers=50,
        patience_s=0.2,
        max_connections=4,
    )
    traffic = await generator.run(per_s=40, seconds=0.5)
    server.close()
    assert traffic.attempts == traffic.statuses[503] + traffic.statuses[TIMED_OUT]
    assert traffic.statuses[503]
    assert traffic.statuses[TIMED_OUT]
    assert not traffic.accepted
