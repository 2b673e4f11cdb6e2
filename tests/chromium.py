"""Headless Chromium for tests, over a pipe: sizes, colour scheme, what a page shows and what its console says."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "no Chromium here: `apt-get install chromium` brings it"

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--ignore-certificate-errors"),
)

_PIPED = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""  # Chromium reads commands from descriptor 3 and answers at 4


class Browser:
    """One tab; a context manager.

    Attributes:
        said: errors and warnings of the console, and of the browser about the page.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        assert PROGRAM is not None, MISSING
        self._until = time.monotonic() + seconds
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.said: list[str] = []
        self._number, self._answers, self._rest = 0, {}, b""
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-ISc", _PIPED, str(theirs_in), str(theirs_out), PROGRAM, *_FLAGS),
                *(f"--user-data-dir={self._home.name}", "--remote-debugging-pipe", "about:blank"),
            ],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._session: str | None = None
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.do(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._home.cleanup()

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol, and its result."""
        self._number += 1
        number, session = self._number, {"sessionId": self._session} if self._session else {}
        command = {"id": number, "method": method, "params": parameters} | session
        os.write(self._out, json.dumps(command).encode() + b"\0")
        while number not in self._answers:
            self._hear()
        answer = self._answers.pop(number)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def show(self, address: str, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Open a page in a window of this size."""
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.do("Emulation.setEmulatedMedia", features=scheme)
        self.do("Page.navigate", url=address)

    def value(self, expression: str) -> Any:
        """What an expression gives in the page."""
        found = self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Until an expression is true in the page."""
        tried = f"(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()"
        while not self.value(tried):
            assert time.monotonic() < self._until, f"never true: {expression}; the console said {self.said}"
            time.sleep(0.05)

    def picture(self, file: Path) -> None:
        """All of the page as a PNG."""
        taken = self.do("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(taken["data"]))

    def spoken(self) -> list[tuple[str, str]]:
        """Role and name of all that a screen reader finds, in order."""
        nodes = self.do("Accessibility.getFullAXTree")["nodes"]
        kept = [node for node in nodes if not node["ignored"]]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in kept]

    def _hear(self) -> None:
        assert time.monotonic() < self._until, "Chromium does not answer"
        while b"\0" not in self._rest:
            piece = os.read(self._in, 2**20)
            assert piece, "Chromium ended"
            self._rest += piece
        first, _, self._rest = self._rest.partition(b"\0")
        told = json.loads(first)
        if "id" in told:
            self._answers[told["id"]] = told
        elif told["method"] == "Log.entryAdded":
            self.said.append(told["params"]["entry"]["text"])
        elif told["method"] == "Runtime.exceptionThrown":
            self.said.append(told["params"]["exceptionDetails"]["text"])
