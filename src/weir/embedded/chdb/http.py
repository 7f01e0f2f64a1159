"""Serves ClickHouse's HTTP interface over the engine, as far as its clients use it."""

from __future__ import annotations

import hmac
import json
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from weir.embedded.chdb.body import decoded, form, raw_body
from weir.embedded.chdb.http_errors import Gone, RequestRefused, describe_error
from weir.embedded.chdb.request import credentials, parse_request
from weir.embedded.chdb.statement_runner import EngineAnswer, Runner, User


class EngineHttpServer(ThreadingHTTPServer):
    """The listening socket, the users and the runner."""

    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], runner: Runner, *, password: str, users: list[User]) -> None:
        self.runner = runner
        self._password = password.encode()
        self._users = {user.name: user for user in users}
        super().__init__(address, RequestHandler)

    def authenticate(self, name: str, password: str) -> User | None:
        right = hmac.compare_digest(password.encode(), self._password)
        return self._users.get(name) if right else None

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class RequestHandler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    timeout = 600
    server: EngineHttpServer

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_HEAD(self) -> None:
        self._handle()

    def _handle(self) -> None:
        body: Iterator[bytes] = iter(())
        try:
            body = raw_body(self.rfile, self._headers())
            self._answer(body)
        except (Gone, ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as error:
            # The engine reports everything as text, so there is no narrower class to catch.
            self._drain(body)
            self._fail(error)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing; the engine has its own log."""

    def _answer(self, raw: Iterator[bytes]) -> None:
        url = urlsplit(self.path)
        arguments = dict(parse_qsl(url.query, keep_blank_values=True))
        asks_nothing = url.path == "/" and self.command != "POST" and "query" not in arguments
        if url.path == "/ping" or asks_nothing:
            self._send(200, b"Ok.\n", {"Content-Type": "text/html; charset=UTF-8"})
            return
        if url.path != "/":
            self._drain(raw)
            self._send(404, f"There is no handle {url.path}\n".encode(), {})
            return
        user = self._user(arguments)
        body = decoded(raw, self.headers.get("Content-Encoding", ""))
        files: dict[str, bytes] = {}
        content_type = self.headers.get("Content-Type", "")
        if content_type.startswith("multipart/form-data"):
            fields, files = form(b"".join(body), content_type)
            arguments |= fields
            body = iter(())
        request = parse_request(arguments, self._headers(), files)
        with self.server.runner.run(request, body, user=user, client=self.connection) as answer:
            self._drain(raw)
            headers = self._answer_headers(answer, request.query_id)
            if answer.more is None:
                self._send(200, answer.body, headers)
            else:
                self._send_in_pieces(answer.body, answer.more, headers)

    def _user(self, arguments: Mapping[str, str]) -> User:
        name, password = credentials(arguments, self._headers())
        user = self.server.authenticate(name, password)
        if user is None:
            reason = "Authentication failed: password is incorrect, or there is no user with such name"
            raise RequestRefused(516, "AUTHENTICATION_FAILED", f"{name[:64]}: {reason}")
        return user

    def _headers(self) -> Mapping[str, str]:
        return self.headers  # type: ignore[return-value]

    def _answer_headers(self, answer: EngineAnswer, query_id: str | None) -> dict[str, str]:
        headers = {
            "Content-Type": "application/octet-stream",
            "X-ClickHouse-Timezone": self.server.runner.engine.timezone,
            "X-ClickHouse-Summary": json.dumps({name: str(value) for name, value in answer.summary.items()}),
        }
        if answer.format:
            headers["X-ClickHouse-Format"] = answer.format
        if query_id:
            headers["X-ClickHouse-Query-Id"] = query_id
        return headers

    def _fail(self, error: Exception) -> None:
        status, code, text = describe_error(error)
        headers = {"Content-Type": "text/plain; charset=UTF-8", "X-ClickHouse-Exception-Code": str(code)}
        self._send(status, (text.rstrip() + "\n").encode(), headers)

    def _drain(self, body: Iterator[bytes]) -> None:
        """Read the rest of the body, so that the next request on the connection can be read."""
        try:
            for _ in body:
                continue
        except (Gone, OSError):
            self.close_connection = True

    def _send_in_pieces(self, first: bytes, more: Iterator[bytes], headers: Mapping[str, str]) -> None:
        """Send the rows as they come. A later error is sent as text without a last chunk, like ClickHouse."""
        self.send_response_only(200)
        for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        self._chunk(first)
        try:
            for piece in more:
                self._chunk(piece)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            self._chunk(describe_error(error)[2].encode())
            self.wfile.flush()
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _chunk(self, data: bytes) -> None:
        if data:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()
