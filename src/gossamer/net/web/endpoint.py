"""The local HTTP endpoint of a node: health, metrics, guarantee, decision and predictions."""

from __future__ import annotations

import ipaddress
import json
import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError, DataError, NetworkError
from gossamer.net.data.samples import parse_json
from gossamer.net.web.status_board import Board
from gossamer.net.wire.addresses import without_brackets

LARGEST_BODY = 16 * 2**20
"""Of a request, in bytes."""

_JSON = "application/json"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = 10.0  # that a client may take for its request


class Endpoint:
    """Serves a board from threads of its own until it is closed.

    Whoever reaches the port sees the metrics and the decision: by default these are the programs of this machine.

    Args:
        board: what to show.
        host: the address to listen on, in brackets or not.
        port: 0 for a free one.

    >>> from urllib.request import urlopen
    >>> from gossamer.privacy.guarantee import no_guarantee
    >>> from gossamer.problems import Logistic
    >>> endpoint = Endpoint(Board(Logistic(2), no_guarantee("an example"), learner=0))
    >>> with urlopen(f"http://127.0.0.1:{endpoint.port}/guarantee") as answer:
    ...     json.load(answer)["sentence"]
    'No privacy guarantee: an example.'
    >>> endpoint.close()
    """

    def __init__(self, board: Board, host: str = "127.0.0.1", port: int = 0) -> None:
        check_count("port", port, least=0, most=65535)
        try:
            self._server = _Server(board, without_brackets(host), port)
        except OSError as refused:
            hint = "another program may use it: give another port (http in node.toml); port 0 finds a free one"
            raise ConfigurationError("endpoint", f"{host}:{port} ({refused.strerror})", "a free port", hint) from None
        self.host, self.port = host, int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True, name="endpoint")
        self._thread.start()

    def close(self) -> None:
        """Stop listening; the port is free afterwards."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, board: Board, host: str, port: int) -> None:
        self.board, self.host, self.loopback = board, host, _is_loopback(host)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """As any TCP server: the one for HTTP looks its own name up, which can take seconds."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news, and a trace could show what it sent."""


class _Answer(NamedTuple):
    status: int
    body: bytes
    kind: str = _JSON
    allow: str = ""


class _RefusedError(Exception):
    """A request that gets an error as its answer."""

    def __init__(self, status: int, error: str, allow: str = "") -> None:
        self.answer = _json_answer({"error": error}, status)._replace(allow=allow)
        super().__init__(error)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SECONDS

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses, without its page, which repeats the request and names versions."""
        if code == 501:  # a method without a do_ of its own
            self._send(_RefusedError(405, "allowed methods are GET and POST", "GET, POST").answer)
        else:
            self._send(_RefusedError(code, "the request cannot be read as HTTP").answer)

    def log_message(self, format: str, *args: Any) -> None:
        """No log of requests: they hold features."""

    def _serve(self, method: str) -> None:
        try:
            self._check_host()
            self._send(self._route(method))
        except _RefusedError as refusal:
            self._send(refusal.answer)
        except OSError:  # the client is gone, or too slow
            self.close_connection = True
        except Exception:  # its text could repeat what was sent
            self._send(_RefusedError(500, "an internal error").answer)

    def _check_host(self) -> None:
        """A page of another site that made its name point here (DNS rebinding) has its own name in this header."""
        port = self.server.server_address[1]
        ours = {f"{name}:{port}" for name in ("localhost", "127.0.0.1", "[::1]", self.server.host)}
        if self.server.loopback and self.headers.get("Host", "").lower() not in ours:
            raise _RefusedError(403, f"the Host header must be localhost:{port} or 127.0.0.1:{port}")

    def _route(self, method: str) -> _Answer:
        path = self.path.partition("?")[0]
        if path not in _ROUTES:
            raise _RefusedError(404, f"there are {', '.join(f'{m} {p}' for p, (m, _) in _ROUTES.items())}")
        expected, answer = _ROUTES[path]
        if method != expected:
            raise _RefusedError(405, f"{path} takes {expected}", expected)
        return answer(self)

    def _health(self) -> _Answer:
        return _json_answer(self.server.board.health(), 200 if self.server.board.healthy else 503)

    def _metrics(self) -> _Answer:
        return _Answer(200, self.server.board.prometheus().encode(), _PROMETHEUS)

    def _guarantee(self) -> _Answer:
        return _json_answer(self.server.board.promise())

    def _decision(self) -> _Answer:
        return _json_answer(self.server.board.decision())

    def _predict(self) -> _Answer:
        try:
            return _json_answer(self.server.board.predict(self._asked()))
        except DataError as unusable:
            raise _RefusedError(400, str(unusable)) from None
        except NetworkError as early:
            raise _RefusedError(503, str(early)) from None

    def _asked(self) -> Any:
        """What predictions are asked for: records where there is a schema, else features."""
        asked = parse_json(self._body())
        if self.server.board.schema is not None:
            if not isinstance(asked, dict | list):
                raise DataError('the body must be a record, {"column": value, ...}, or a list of records')
            return asked
        if not isinstance(asked, dict) or "x" not in asked:
            raise DataError('the body must be {"x": [...]} or {"x": [[...], ...]}')
        return asked["x"]

    def _body(self) -> bytes:
        given = self.headers.get("Content-Length", "")
        if not (given.isascii() and given.isdigit()) or "Transfer-Encoding" in self.headers:
            raise _RefusedError(411, "a Content-Length is needed")
        if len(given) > 12 or int(given) > LARGEST_BODY:
            raise _RefusedError(413, f"at most {LARGEST_BODY:,} bytes are taken")
        body = self.rfile.read(int(given))
        if len(body) < int(given):
            raise _RefusedError(400, "the body is shorter than its Content-Length")
        return body

    def _send(self, answer: _Answer) -> None:
        self.close_connection = True
        self.send_response_only(answer.status)
        headers = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), "Allow": answer.allow}
        headers |= {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Connection": "close"}
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)


_ROUTES: dict[str, tuple[str, Callable[[_Handler], _Answer]]] = {
    "/healthz": ("GET", _Handler._health),
    "/metrics": ("GET", _Handler._metrics),
    "/guarantee": ("GET", _Handler._guarantee),
    "/decision": ("GET", _Handler._decision),
    "/predict": ("POST", _Handler._predict),
}


def _json_answer(facts: dict[str, Any], status: int = 200) -> _Answer:
    return _Answer(status, json.dumps(facts, allow_nan=False).encode() + b"\n")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise ConfigurationError("host", host, "localhost or an IP address", "try 127.0.0.1") from None
