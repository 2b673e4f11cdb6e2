"""The HTTP endpoint of a node: its page, health, metrics, guarantee, decision and predictions."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from importlib.resources import files as package_files
from typing import Any, NamedTuple

from gossamer.checks import check_count
from gossamer.errors import ConfigurationError, DataError, NetworkError
from gossamer.net.data.samples import parse_json
from gossamer.net.web.access import Access, Certified, Right, is_loopback
from gossamer.net.web.server import Answer, Limits, RefusedError, Request, Server
from gossamer.net.web.status import About, status_of
from gossamer.net.web.status_board import Board
from gossamer.net.wire.addresses import without_brackets
from gossamer.net.wire.zenoh_link import Files

_JSON = "application/json"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_BACKLOG = 256
_MOST_ROWS = 50_000  # of a request for predictions: a list or an object of Python takes a hundred times its two bytes

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Of every answer: nothing of another site is loaded, and no other site shows this one."""


class Endpoint:
    """Serves a board from threads of its own until it is closed.

    On loop-back programs of this machine see everything, unless there is a token. At any other address whoever reaches
    the port sees whether the node is healthy, and whoever has a token sees what the token is for.

    Args:
        board: what to show.
        host: the address to listen on, in brackets or not.
        port: 0 for a free one.
        about: what the page says of the node and its network.
        token: of the owner; needed where the address is not loop-back.
        metrics_token: good for metrics and health only.
        certificate: for TLS, with its key; needed where the address is not loop-back.
        limits: what clients may take.

    >>> from urllib.request import urlopen
    >>> from gossamer.privacy.guarantee import no_guarantee
    >>> from gossamer.problems import Logistic
    >>> endpoint = Endpoint(Board(Logistic(2), no_guarantee("an example"), learner=0))
    >>> with urlopen(f"http://127.0.0.1:{endpoint.port}/guarantee") as answer:
    ...     json.load(answer)["sentence"]
    'No privacy guarantee: an example.'
    >>> endpoint.close()
    """

    def __init__(
        self,
        board: Board,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        about: About | None = None,
        token: str | None = None,
        metrics_token: str | None = None,
        certificate: Files | None = None,
        limits: Limits | None = None,
    ) -> None:
        check_count("port", port, least=0, most=65535)
        bare = without_brackets(host)
        _check_open(bare, token, certificate)
        self._tls = None if certificate is None else Certified(certificate)
        self._board, self._about = board, about or About()
        listener = _listener(bare, port)
        self.host, self.port = host, int(listener.getsockname()[1])
        self._access = Access(bare, self.port, token, metrics_token)
        context = None if self._tls is None else self._tls.context
        self._server = Server(self._route, _failed, listener, tls=context, headers=HEADERS, limits=limits)

    def close(self) -> None:
        """Stop listening; the port is free afterwards."""
        self._server.close()

    def _route(self, request: Request) -> Answer | Callable[[Request], Answer]:
        if request.method not in ("GET", "POST"):
            raise RefusedError(405, "allowed methods are GET and POST", "GET, POST")
        path = request.path.partition("?")[0]
        if path not in _ROUTES:
            raise RefusedError(404, f"there are {', '.join(f'{one.method} {p}' for p, one in _ROUTES.items())}")
        route = _ROUTES[path]
        self._access.check(request, route.right)
        if request.method != route.method:
            raise RefusedError(405, f"{path} takes {route.method}", route.method)
        return route.answer(self, request)

    def _health(self, request: Request) -> Answer:
        """Whoever has no token learns whether the node is healthy, and nothing else."""
        told = self._board.health() if self._access.may(request, "metrics") else {"healthy": self._board.healthy}
        return _json_answer(told, 200 if self._board.healthy else 503)

    def _metrics(self, request: Request) -> Answer:
        if self._tls is not None:
            self._board.set("page_certificate_end", self._tls.until.timestamp())
        return Answer(200, self._board.prometheus().encode(), _PROMETHEUS)

    def _status(self, request: Request) -> Answer:
        return _json_answer(status_of(self._board, self._about) | {"guarded": self._access.owner is not None})

    def _guarantee(self, request: Request) -> Answer:
        return _json_answer(self._board.promise())

    def _decision(self, request: Request) -> Answer:
        return _json_answer(self._board.decision())

    def _predict(self, request: Request) -> Callable[[Request], Answer]:
        return self._predicted

    def _predicted(self, request: Request) -> Answer:
        try:
            return _json_answer(self._board.predict(self._asked(request.body)))
        except DataError as unusable:
            raise RefusedError(400, str(unusable)) from None
        except NetworkError as early:
            raise RefusedError(503, str(early)) from None

    def _asked(self, body: bytes) -> Any:
        """What predictions are asked for: records where there is a schema, else features."""
        if body.count(b"[") + body.count(b"{") > _MOST_ROWS:
            raise RefusedError(413, f"at most {_MOST_ROWS:,} rows are taken at once")
        asked = parse_json(body)
        if self._board.schema is not None:
            if not isinstance(asked, dict | list):
                raise DataError('the body must be a record, {"column": value, ...}, or a list of records')
            return asked
        if not isinstance(asked, dict) or "x" not in asked:
            raise DataError('the body must be {"x": [...]} or {"x": [[...], ...]}')
        return asked["x"]


class _Route(NamedTuple):
    method: str
    right: Right
    answer: Callable[[Endpoint, Request], Answer | Callable[[Request], Answer]]


def _page(name: str, kind: str) -> _Route:
    """A file of the page; it holds no facts."""
    answer = Answer(200, (package_files(__package__) / "page" / name).read_bytes(), kind)
    return _Route("GET", "page", lambda endpoint, request: answer)


_ROUTES: dict[str, _Route] = {
    "/": _page("index.html", "text/html; charset=utf-8"),
    "/page.css": _page("page.css", "text/css; charset=utf-8"),
    "/page.js": _page("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": _page("icon.svg", "image/svg+xml"),
    "/healthz": _Route("GET", "everybody", Endpoint._health),
    "/metrics": _Route("GET", "metrics", Endpoint._metrics),
    "/status": _Route("GET", "owner", Endpoint._status),
    "/guarantee": _Route("GET", "owner", Endpoint._guarantee),
    "/decision": _Route("GET", "owner", Endpoint._decision),
    "/predict": _Route("POST", "owner", Endpoint._predict),
}


def _check_open(host: str, token: str | None, certificate: Files | None) -> None:
    """Refuse a page that others reach without a token, or in clear."""
    if is_loopback(host):
        return
    if token is None:
        hint = "`gossamer node token DIR` makes one"
        raise ConfigurationError("http", host, "loop-back; or a token, where others reach the page", hint)
    if certificate is None:
        raise ConfigurationError("http", host, "loop-back; or TLS, since the token is sent with every request")


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except OSError as refused:
        hint = "another program may use it: give another port (http in node.toml); port 0 finds a free one"
        raise ConfigurationError("endpoint", f"{host}:{port} ({refused.strerror})", "a free port", hint) from None


def _failed(refusal: RefusedError) -> Answer:
    return _json_answer({"error": refusal.error}, refusal.status)._replace(allow=refusal.allow)


def _json_answer(facts: dict[str, Any], status: int = 200) -> Answer:
    return Answer(status, json.dumps(facts, allow_nan=False).encode() + b"\n", _JSON)
