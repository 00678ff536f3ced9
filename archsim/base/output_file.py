"""The one way to a file that archsim writes: there under its name when it is whole, or not at all.

A file that exists is replaced only where that was asked for (`--force`), and only a regular file ever is: a pipe, a
device node or a folder of that name is refused. A replaced file keeps its mode and owner. Content goes to a file beside
it with a name of its own, which takes the place of the target in one step, so that neither a full disk nor a kill
leaves half of anything. While one process writes a file another one that wants to is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from archsim.base.diagnostics import inert, quote
from archsim.base.errors import OutputFailure, OutputRefused

KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
"""File type -> what it is, of those that are neither read nor replaced."""

FORCE = "`--force` replaces it"


def write_text(path: Path | str, text: str, *, force: bool = False) -> None:
    """As `write_bytes`, in UTF-8."""
    write_bytes(path, text.encode(), force=force)


def write_bytes(path: Path | str, data: bytes, *, force: bool = False) -> None:
    """Writes a whole file. force: replace one that exists. Raises OutputRefused and OutputFailure."""
    with replacing(path, force=force) as stream:
        stream.write(data)


@contextmanager
def replacing(path: Path | str, *, force: bool = False) -> Iterator[BinaryIO]:
    """A stream whose content is the file when the block ends, and nothing where it raises."""
    file = OutputFile(path, force=force)
    try:
        with failures_of(path):
            yield file.stream
    except BaseException:
        file.drop()
        raise
    file.commit()


def make_folder(path: Path) -> Path:
    """The folder, made with those above it where it is missing. Raises OutputFailure."""
    with failures_of(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def check_output(path: Path | str | None, *, force: bool = False) -> None:
    """Refuses a place where no file may be written, before the work for it is done. No path: nothing to check."""
    if path is not None:
        _target(path, force)


@contextmanager
def failures_of(path: Path | str) -> Iterator[None]:
    """Within, what the system says of writing `path` becomes an OutputFailure."""
    try:
        yield
    except OSError as error:
        raise _failure(path, error) from None


class OutputFile:
    """A file being written. `stream` takes its bytes; `commit` gives it its name, `drop` leaves nothing behind."""

    def __init__(self, path: Path | str, *, force: bool = False) -> None:
        self.path, self.force = Path(path), force
        self.target = _target(path, force)
        with failures_of(path):
            self._lock = _Lock(self.target, self.path)
            try:
                self._part, self.stream = _beside(self.target)
            except BaseException:
                self._lock.release()
                raise

    def commit(self) -> None:
        """End the file and give it its name. Raises as the constructor does; nothing is left behind then."""
        try:
            with failures_of(self.path):
                self.stream.flush()
                os.fsync(self.stream.fileno())
                self._keep_owner()
                self.stream.close()
                self._rename()
        except BaseException:
            self.drop()
            raise
        self._lock.release()

    def drop(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError, ValueError):
            self.stream.close()
        with suppress(OSError):
            os.unlink(self._part)
        self._lock.release()

    def _keep_owner(self) -> None:
        """The mode and owner of the file that is replaced. Raises OutputRefused where they cannot be kept."""
        _target(self.path, self.force)
        try:
            old = os.stat(self.target)
        except FileNotFoundError:
            return
        handle = self.stream.fileno()
        own = os.fstat(handle)
        if (old.st_uid, old.st_gid) != (own.st_uid, own.st_gid):
            try:
                os.fchown(handle, old.st_uid, old.st_gid)
            except PermissionError:
                message = f"{quote(self.path, 200)} belongs to another user, which a replacement would not keep"
                raise OutputRefused(message, hints=("write to another file, or remove this one first",)) from None
        os.fchmod(handle, stat.S_IMODE(old.st_mode))

    def _rename(self) -> None:
        if self.force:
            os.replace(self._part, self.target)
            return
        try:
            os.link(self._part, self.target)  # unlike a renaming, refuses a file that has come in between
        except FileExistsError:
            raise OutputRefused(f"{quote(self.path, 200)} exists", hints=(FORCE,)) from None
        except OSError:  # a file system without links
            _target(self.path, self.force)
            os.replace(self._part, self.target)
            return
        os.unlink(self._part)


def _target(path: Path | str, force: bool) -> Path:
    """The place itself, links followed. Raises OutputRefused where nothing may be written."""
    try:
        target = os.path.realpath(path)
        found = os.stat(target)
    except (FileNotFoundError, NotADirectoryError):
        return _in_folder(path, Path(target))
    except ValueError:
        raise OutputRefused(f"{quote(path, 200)} is not a usable path") from None
    except OSError as error:
        raise _failure(path, error) from None
    kind = KINDS.get(stat.S_IFMT(found.st_mode))
    if kind == "a folder":
        inside = Path(path) / "NAME"
        raise OutputRefused(f"{quote(path, 200)} is a folder", hints=(f"name a file in it: {quote(inside, 200)}",))
    if kind is not None:
        hint = "only regular files are written"
        raise OutputRefused(f"{quote(path, 200)} is {kind}, not a regular file", hints=(hint,))
    if not force:
        raise OutputRefused(f"{quote(path, 200)} exists", hints=(FORCE,))
    return Path(target)


def _in_folder(path: Path | str, target: Path) -> Path:
    """The place of a new file. Raises OutputRefused where there is no folder for it."""
    if target.parent.is_dir():
        return target
    folder = os.path.dirname(os.fspath(path)) or "."
    hints = (f"`mkdir -p {inert(folder)}` makes it",) if len(folder) < 200 else ()
    raise OutputRefused(f"cannot write {quote(path, 200)}: there is no folder {quote(folder, 200)}", hints=hints)


def _beside(target: Path) -> tuple[Path, BinaryIO]:
    """A new file in the target's folder, of a name that nothing has."""
    import secrets  # loads the hashes of the standard library, which other commands do not need

    part = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    return part, os.fdopen(os.open(part, flags, 0o666), "wb")


class _Lock:
    """Held by the one process that writes a file. Where the system has no locks, nothing is held."""

    def __init__(self, target: Path, shown: Path) -> None:
        self._path = target.with_name(f".{target.name[:200]}.lock")
        self._handle: int | None = None
        try:
            import fcntl
        except ImportError:
            return
        while self._handle is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            handle = os.open(self._path, flags, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                message = f"another process is writing {quote(shown, 200)}"
                raise OutputRefused(message, hints=("wait for it, or write to another file",)) from None
            except OSError:  # a file system without locks
                self._handle = handle
                return
            if _is_same(handle, self._path):
                self._handle = handle
            else:  # the last holder has removed it in between
                os.close(handle)

    def release(self) -> None:
        """Let others write. A file of this name that holds something was there before, and stays."""
        if self._handle is None:
            return
        with suppress(OSError):
            if _is_same(self._handle, self._path) and os.fstat(self._handle).st_size == 0:
                os.unlink(self._path)
        os.close(self._handle)
        self._handle = None


def _is_same(handle: int, path: Path) -> bool:
    """Whether a path still names the open file."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _failure(path: Path | str, error: OSError) -> OutputFailure:
    return OutputFailure(f"cannot write {quote(path, 200)}: {(error.strerror or type(error).__name__).lower()}")
