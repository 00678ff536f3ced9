"""Standard output and error while a command runs: what the system says of them becomes one error each."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from archsim.base.errors import ArchsimError, OutputFailure, ReaderGone


@contextmanager
def guarded() -> Iterator[None]:
    """Within, writing to standard output raises OutputFailure or ReaderGone where it fails; standard error never does.

    A stream that lacks a sign gets a replacement, and one that was closed before the start is one that fails.
    """
    before = sys.stdout, sys.stderr
    for stream in before:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    sys.stdout, sys.stderr = Answer(sys.stdout), Remarks(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


_BEFORE_TEXT: list[Callable[[], None]] = []


@contextmanager
def before_text(clear: Callable[[], None]) -> Iterator[None]:
    """Within, `clear` is called before anything is written: it takes away a line that stands where the text will. One
    that was set around it is called now.
    """
    _about_to_write()
    _BEFORE_TEXT.append(clear)
    try:
        yield
    finally:
        if clear in _BEFORE_TEXT:
            _BEFORE_TEXT.remove(clear)


def _about_to_write() -> None:
    while _BEFORE_TEXT:
        _BEFORE_TEXT.pop()()


class _Stream(ABC):
    """A text stream, everything but writing as it was. None: a stream that was closed before the start."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def beneath(self) -> Any:
        """The stream itself, for a line that moves and is no text."""
        return self._stream

    def isatty(self) -> bool:
        """Whether a person reads it."""
        return self._stream is not None and bool(self._stream.isatty())

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def write(self, text: str) -> int:
        """Write a text."""
        _about_to_write()
        return self._do("write", text) or len(text)

    def flush(self) -> None:
        """Hand on what is buffered."""
        self._do("flush")

    @abstractmethod
    def _do(self, what: str, *arguments: str) -> Any:
        """Call a method of the stream; what its failure means is each stream's own."""


class Answer(_Stream):
    """Standard output. Raises OutputFailure, or ReaderGone where whoever read it has left; once, and ever after."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._failure: ArchsimError | None = None if stream is not None else OutputFailure("standard output is closed")

    def _do(self, what: str, *arguments: str) -> Any:
        if self._failure is not None:  # a library may have swallowed it
            raise self._failure
        try:
            return getattr(self._stream, what)(*arguments)
        except BrokenPipeError:
            self._failure = ReaderGone("the reader closed standard output")
        except (OSError, ValueError) as error:
            reason = (getattr(error, "strerror", None) or "it is closed").lower()
            self._failure = OutputFailure(f"cannot write standard output: {reason}")
        self._discard()
        raise self._failure

    def _discard(self) -> None:
        """Let what is still buffered go nowhere, so that the end of the process is quiet."""
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


class Remarks(_Stream):
    """Standard error: a remark that cannot be written is left out, the answer and the exit code stay."""

    def _do(self, what: str, *arguments: str) -> Any:
        if self._stream is not None:
            with suppress(OSError, ValueError):
                return getattr(self._stream, what)(*arguments)
        return None
