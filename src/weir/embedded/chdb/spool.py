"""Holds rows for the engine in a file that it can read: in anonymous memory, or a temporary file."""

from __future__ import annotations

import os
import tempfile
from typing import IO, Any, Self


class Spool:
    """A file that no other process sees, and that is removed when the block ends."""

    def __enter__(self) -> Self:
        self._file: IO[Any]
        if hasattr(os, "memfd_create"):
            self._file = os.fdopen(os.memfd_create("insert", os.MFD_CLOEXEC), "wb", buffering=0)
            self.path = f"/proc/self/fd/{self._file.fileno()}"
        else:
            self._file = tempfile.NamedTemporaryFile(buffering=0)
            self.path = self._file.name
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
