"""Files as confidential as the data: nobody but their owner may read them, not for a moment."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def private_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, readable by its owner only (mode 0600) before it has its first byte, whatever the umask.

    It is written under another name and takes the place of `path` when it is whole and on disk. A crash leaves what was
    there before; what was there may have had a wider mode.
    """
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)  # of a crash; its mode may be any
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # a strict umask may have taken the owner's rights
            yield file
            file.flush()
            os.fsync(descriptor)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
