"""The HTTP server against clients that dribble, flood, say nothing, or say nonsense; all on loop-back, in seconds."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from gossamer.net.web.server import Answer, Limits, RefusedError, Request, Server


def route(request: Request) -> Answer:
    if request.path == "/slow":
        return lambda with_body: (time.sleep(0.2), Answer(200, with_body.body[:9], "text/plain"))[1]
    if request.path == "/burn":
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass
    if request.path == "/broken":
        raise RuntimeError(f"with {request.headers}")
    if request.path == "/no":
        raise RefusedError(405, "no", "GET")
    return Answer(200, request.path.encode(), "text/plain")


@contextmanager
def served(**limits: float) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    port = listener.getsockname()[1]
    failed = lambda refusal: Answer(refusal.status, refusal.error.encode(), "text/plain", refusal.allow)  # noqa: E731
    server = Server(route, failed, listener, headers={"X-Ours": "1"}, limits=Limits(**limits))
    try:
        yield port
    finally:
        server.close()


def ask(port: int, path: str = "/", method: str = "GET", body: bytes | None = None, seconds: float = 10) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def connected(port: int, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=10)
    made.sendall(sent)
    return made


def rest(connection: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    try:
        return b"".join(iter(lambda: connection.recv(4096), b""))
    except ConnectionResetError:
        return b""


def test_clients_that_dribble_hold_up_nobody():
    with served(connections=100) as port, ExitStack() as until_the_end:
        for _ in range(300):
            until_the_end.enter_context(connected(port, b"GET / HT"))
        begun = time.monotonic()
        assert [ask(port) for _ in range(5)] == [200] * 5
        assert time.monotonic() - begun < 5


def test_the_one_that_is_there_longest_goes_when_there_are_too_many():
    with served(connections=3) as port, ExitStack() as until_the_end:
        waiting = [until_the_end.enter_context(connected(port, b"GET")) for _ in range(6)]
        assert [rest(one) for one in waiting[:3]] == [b""] * 3
        waiting[5].sendall(b" / HTTP/1.1\r\n\r\n")
        assert rest(waiting[5]).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("said", [b"", b"G", b"POST /slow HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"])
def test_a_request_has_a_total_time(said):
    """However it is cut: what dribbles has no more time than what is silent."""
    with served(seconds=0.4) as port, connected(port, said) as client:
        begun, dribbling = time.monotonic(), threading.Event()

        def dribble() -> None:
            while not dribbling.wait(0.05):
                try:
                    client.send(b"x" if said else b"")
                except OSError:
                    return

        thread = threading.Thread(target=dribble)
        thread.start()
        assert rest(client)[:12] in (b"", b"HTTP/1.1 200")  # a body of nine bytes may come whole in that time
        dribbling.set()
        thread.join()
        assert time.monotonic() - begun < 3


def test_two_hundred_clients_at_once():
    with served() as port:
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(ask(port, seconds=30))) for _ in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [200] * 200


def test_the_sum_of_bodies_is_bounded_and_comes_back():
    """Six clients hold back the last byte of two pieces each, and four pieces is all that there may be."""
    piece = 2**16
    said = b"POST /slow HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (2 * piece) + bytes(2 * piece - 1)
    with served(bodies=4 * piece, body=4 * piece, seconds=2.0) as port, ExitStack() as until_the_end:
        clients = [until_the_end.enter_context(connected(port, said)) for _ in range(6)]
        answers = [rest(client)[:12] for client in clients]
        assert set(answers) == {b"", b"HTTP/1.1 503"}
        assert answers.count(b"HTTP/1.1 503") >= 3
        assert ask(port, "/slow", "POST", bytes(9)) == 200


def test_a_flood_leaves_four_fifths_of_the_time():
    """Each answer takes 10 ms of processor: without a rest there would be a hundred in a second."""
    with served() as port:
        until, found = time.monotonic() + 1.0, []
        while time.monotonic() < until:
            found.append(ask(port, "/burn"))
        assert 1 <= len(found) <= 25
        assert set(found) == {200}


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 200),
        (b"GET /a?b=c HTTP/1.0\r\nHost: x\r\n\r\n", 200),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\n\r\n", 400),
        (b"GET http://evil.example/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\nb\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\x00\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"GET " + b"/" * 20_000, 431),
        (b"GET /broken HTTP/1.1\r\nX: secret\r\n\r\n", 500),
        (b"GET /no HTTP/1.1\r\n\r\n", 405),
        (b"POST /slow HTTP/1.1\r\n\r\n", 411),
        (b"POST /slow HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 411),
        (b"POST /slow HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc", 100),
    ],
)
def test_what_is_no_request_is_refused(said, status):
    with served() as port, connected(port, said) as client:
        client.shutdown(socket.SHUT_WR)
        answer = rest(client)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b"secret" not in answer
        if status == 200:
            assert b"\r\nX-Ours: 1\r\n" in answer


def test_the_next_client_is_served_after_any_of_these(capfd):
    with served() as port:
        for said in (b"", b"G", b"GET / HTTP/1.1\r\n\r\n", b"POST /slow HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"):
            with connected(port, said) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        assert ask(port) == 200
    assert capfd.readouterr() == ("", "")


def test_closing_ends_what_is_open():
    with ExitStack() as until_the_end:
        with served() as port:
            client = until_the_end.enter_context(connected(port, b"GET"))
            assert ask(port) == 200
        assert rest(client) == b""
