"""Whether the other processes of a mesh are still there: nobody waits for one that has died.

Every process counts up once a second in the store that `jax.distributed` keeps with its first process, and looks at how
far the others have got. JAX itself would wait for its own heartbeats, and then end the process without a word.
"""

import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import jax
from jax._src import distributed  # nothing public tells who is alive without waiting for the dead

from gossamer.errors import NetworkError

Result = TypeVar("Result")
_FOLDER = "gossamer/alive/"
_EVERY, _LOOK = 1.0, 0.1
SILENT = 20.0
"""Seconds without a sign of life after which a process counts as lost."""


class Watch:
    """Signs of life, one's own and those of others, from a thread that lives as long as the process."""

    def __init__(self, client: Any, process: int) -> None:
        self._client, self._process = client, process
        self._heard: dict[str, tuple[str, float]] = {}  # of every process its last sign, and when it was new
        self._answered = time.monotonic()  # when the store did
        threading.Thread(target=self._listen, name="gossamer watch", daemon=True).start()

    def check(self) -> None:
        """Raise where a process has been silent for too long; one that never gave a sign has not begun."""
        now = time.monotonic()
        if now - self._answered > SILENT:
            raise NetworkError("process 0 of the mesh, which keeps the store of jax.distributed, was lost")
        for name, (_, since) in list(self._heard.items()):
            if now - since > SILENT:
                raise NetworkError(f"process {name.removeprefix(_FOLDER)} of the mesh was lost")

    def _listen(self) -> None:
        count = 0
        while True:
            try:
                self._client.key_value_set(f"{_FOLDER}{self._process}", str(count), allow_overwrite=True)
                signs = dict(self._client.key_value_dir_get(_FOLDER))
            except jax.errors.JaxRuntimeError:  # the store is gone: `check` says so when it has been for long
                signs = {}
            now, count = time.monotonic(), count + 1
            if signs:
                self._answered = now
            for name, sign in signs.items():
                if self._heard.get(name, ("", 0.0))[0] != sign:
                    self._heard[name] = sign, now
            time.sleep(_EVERY)


@cache
def watch() -> Watch:
    """That of this process, which begins when it is first asked for."""
    return Watch(distributed.global_state.client, jax.process_index())


def waited_for(call: Callable[[], Result]) -> Result:
    """What a call returns that other processes take part in; an error where one of them is gone.

    The call runs in a thread of its own, since nothing ends it where it waits for the dead: not even a program that is
    only started, as a CPU computes short ones at once.
    """
    answer: list[Result] = []
    broken: list[BaseException] = []

    def run() -> None:
        try:
            answer.append(call())
        except BaseException as error:  # raised again below, where somebody listens
            broken.append(error)

    thread = threading.Thread(target=run, name="gossamer waits", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK)
        if thread.is_alive():
            watch().check()
    if broken:
        raise broken[0]
    return answer[0]
