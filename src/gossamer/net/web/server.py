"""A small HTTP server that strangers cannot use up: all that its clients may take together is bounded.

One thread reads requests as they come, so a client that dribbles holds up nobody. One more thread computes what takes
long. Each of the two rests several times as long as it worked, so that a flood leaves the node its processor.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

_HEAD = re.compile(r"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.[01]")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_PIECE = 2**16
_READ_AWAY = 1.0  # seconds
_REST, _REST_OF_WORKER = 4.0, 9.0  # times the work: a fifth of a core, and a tenth
_LONGEST_REST = 1.0  # seconds


@dataclass(frozen=True)
class Limits:
    """What clients may take.

    Attributes:
        connections: at once; one more ends the one that is there longest.
        seconds: from connecting to the last byte of a request.
        answer: seconds for computing and sending the answer.
        head: bytes of request line and headers.
        body: bytes of a request's body.
        bodies: bytes of the bodies of all requests at once.
    """

    connections: int = 256
    seconds: float = 10.0
    answer: float = 30.0
    head: int = 2**14
    body: int = 2**21
    bodies: int = 2**24


class Request(NamedTuple):
    """What a client asks; names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


class Answer(NamedTuple):
    """What it gets."""

    status: int
    body: bytes
    kind: str
    allow: str = ""


class RefusedError(Exception):
    """A request that gets an error as its answer: its status, what to say, and the methods that are allowed."""

    def __init__(self, status: int, error: str, allow: str = "") -> None:
        self.status, self.error, self.allow = status, error, allow
        super().__init__(error)


Route = Callable[[Request], Callable[[Request], Answer] | Answer]
"""The answer to a request without its body; or what makes it from the body, in a thread of its own."""


class Server:
    """Listens until it is closed.

    Args:
        route: the answer to a request; raises RefusedError. Called before the body is read.
        failed: the answer that says what is wrong.
        listener: a bound socket.
        tls: None for plain HTTP; called for every connection, since certificates are renewed.
        headers: that every answer has.
        limits: what clients may take.
    """

    def __init__(
        self,
        route: Route,
        failed: Callable[[RefusedError], Answer],
        listener: socket.socket,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        headers: dict[str, str],
        limits: Limits | None = None,
    ) -> None:
        self._route, self._failed, self._listener = route, failed, listener
        self._tls, self._headers, self._limits = tls, headers, limits or Limits()
        self._open: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._held, self._rested = 0, 0.0  # bytes of bodies; until when the worker rests
        self._worker = ThreadPoolExecutor(1, "predictions")
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda loop, context: None)  # a client that went away is no news
        listener.setblocking(False)
        self._accepting = self._loop.create_task(self._accept())
        self._thread = threading.Thread(target=self._run, daemon=True, name="endpoint")
        self._thread.start()

    def close(self) -> None:
        """Stop listening; the port is free afterwards."""
        self._loop.call_soon_threadsafe(self._accepting.cancel)
        self._thread.join()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._accepting)
        self._loop.run_until_complete(self._end())
        self._listener.close()
        self._loop.close()

    async def _end(self) -> None:
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self) -> None:
        worked = time.thread_time()
        while True:
            try:
                connection, _ = await self._loop.sock_accept(self._listener)
            except OSError:  # no descriptor is free: that passes
                await asyncio.sleep(0.1)
                continue
            while len(self._open) >= self._limits.connections:
                oldest = next(iter(self._open))
                oldest.cancel()
                del self._open[oldest]
            task = self._loop.create_task(self._serve(connection))
            self._open[task] = None
            task.add_done_callback(lambda done: self._open.pop(done, None))
            now = time.thread_time()
            await asyncio.sleep(min(_LONGEST_REST, _REST * (now - worked)))
            worked = now

    async def _serve(self, connection: socket.socket) -> None:
        """One request and its answer; a connection is good for one."""
        writer = None
        try:
            async with asyncio.timeout(self._limits.seconds) as limit:
                reader, writer = await self._connected(connection)
                answer = await self._answer(reader, writer, limit)
                writer.write(_in_bytes(answer, self._headers))
                await writer.drain()
                if answer.status >= 400:
                    await _read_away(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError):
            pass  # the client is gone, or too slow
        finally:
            connection.close() if writer is None else writer.transport.abort()

    async def _connected(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection.setblocking(False)
        reader = asyncio.StreamReader(limit=self._limits.head)
        protocol = asyncio.StreamReaderProtocol(reader)
        context = None if self._tls is None else self._tls()
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, connection, ssl=context)
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: asyncio.Timeout
    ) -> Answer:
        body = bytearray()
        try:
            request = _parsed(await self._head(reader))
            answer = self._route(request)
            if isinstance(answer, Answer):
                return answer
            await self._receive(body, self._length(request), reader, writer, "expect" in request.headers)
            limit.reschedule(self._loop.time() + self._limits.answer)
            return await self._loop.run_in_executor(self._worker, self._computed, answer, request, bytes(body))
        except RefusedError as refusal:
            return self._failed(refusal)
        except (OSError, EOFError, TimeoutError):
            raise
        except Exception:  # its text could repeat what was sent
            return self._failed(RefusedError(500, "an internal error"))
        finally:
            self._held -= len(body)

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise RefusedError(431, f"request line and headers have more than {self._limits.head:,} bytes") from None
        except asyncio.IncompleteReadError as short:
            if not short.partial:
                raise
            raise RefusedError(400, "the request cannot be read as HTTP") from None

    def _length(self, request: Request) -> int:
        given = request.headers.get("content-length", "")
        if not (given.isascii() and given.isdigit()) or "transfer-encoding" in request.headers:
            raise RefusedError(411, "a Content-Length is needed")
        if len(given) > 12 or int(given) > self._limits.body:
            raise RefusedError(413, f"at most {self._limits.body:,} bytes are taken")
        return int(given)

    async def _receive(
        self, body: bytearray, length: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bool
    ) -> None:
        """Read a body; what has come is counted, what was only announced is not."""
        if asked:  # the client waits for a sign before it sends
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(body) < length:
            if self._held + _PIECE > self._limits.bodies:
                raise RefusedError(503, "too much is asked at once: ask again in a moment")
            piece = await reader.read(min(_PIECE, length - len(body)))
            if not piece:
                raise RefusedError(400, "the body is shorter than its Content-Length")
            body += piece
            self._held += len(piece)

    def _computed(self, make: Callable[[Request], Answer], request: Request, body: bytes) -> Answer:
        """What takes long; in the worker's thread, which has a rest before the next one."""
        time.sleep(max(0.0, self._rested - time.monotonic()))
        begun = time.monotonic()
        try:
            return make(request._replace(body=body))
        finally:
            now = time.monotonic()
            self._rested = now + min(_LONGEST_REST, _REST_OF_WORKER * (now - begun))


async def _read_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take what a refused client still sends: closing on it would lose the answer on its way."""
    if writer.can_write_eof():
        writer.write_eof()
    with suppress(TimeoutError):
        async with asyncio.timeout(_READ_AWAY):
            while await reader.read(_PIECE):
                pass


def _parsed(head: bytes) -> Request:
    r"""Request line and headers; a header that comes twice has both values.

    >>> _parsed(b"GET /metrics HTTP/1.1\r\nHost: localhost:8400\r\n\r\n")[:3]
    ('GET', '/metrics', {'host': 'localhost:8400'})
    """
    line, *fields = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    found, headers = _HEAD.fullmatch(line), dict[str, str]()
    for one in map(_FIELD.fullmatch, fields):
        if one is None:
            raise RefusedError(400, "the request cannot be read as HTTP")
        name = one[1].lower()
        headers[name] = f"{headers[name]}, {one[2]}" if name in headers else one[2]
    if found is None:
        raise RefusedError(400, "the request cannot be read as HTTP")
    return Request(found[1], found[2], headers)


def _in_bytes(answer: Answer, headers: dict[str, str]) -> bytes:
    own = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), "Allow": answer.allow}
    lines = [f"{name}: {value}" for name, value in (own | headers).items() if value]
    first = f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"
    return "\r\n".join((first, *lines, "Connection: close", "", "")).encode("latin-1") + answer.body
