"""Models that a visitor uploads: a config.json, the header of a GGUF file or a spec in YAML, read from memory.

Nothing is written to disk, and no file is opened for what an upload says: its name is a label, `extends` and formats
are names of the catalog. Size, nesting and aliases are bounded by the same readers that the command line uses.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from threading import Lock

from archsim.base.data_class import dataclass
from archsim.base.diagnostics import inert, quote, shorten
from archsim.base.errors import SpecError
from archsim.base.input_file import parse_json, unusable
from archsim.base.json_types import JsonObject
from archsim.spec import load
from archsim.spec.loader import parse_bytes
from archsim.spec.model import Model
from archsim.ui.choices import Choices

LARGEST = 32 * 2**20
"""Bytes of an upload at most: the page sends no more of a GGUF file than this, which holds its header."""
LARGEST_TEXT = 2 * 2**20
"""Bytes of a config.json or a YAML spec at most."""
MOST_VALUES = 20_000
"""Values in an uploaded document at most; a spec has some hundreds."""
MOST_LAYERS = 1_024
"""Layers of an uploaded model at most, so that an answer takes well below a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A model that was uploaded. key: what stands for it in links. label: the file's name. spec: its text in YAML."""

    key: str
    label: str
    model: Model
    spec: str
    choices: Choices

    def changed(self, changes: tuple[str, ...]) -> Model:
        """The model with fields of its spec changed. Raises ArchsimError."""
        model = load.model_from_bytes(self.spec.encode(), self.label, self._catalog_name, changes)
        return _renamed(model, self.label)

    def document(self, changes: tuple[str, ...]) -> JsonObject:
        """The spec with fields changed. Raises ArchsimError."""
        return load.document_from_bytes(self.spec.encode(), self.label, self._catalog_name, changes)

    def _catalog_name(self, base: str) -> str:
        return self.choices.model(base)[0]


class Uploads(Mapping[str, Upload]):
    """The last uploads, by key; the oldest goes first. Safe for several threads."""

    def __init__(self, most: int = 32) -> None:
        self._most, self._lock = most, Lock()
        self._kept: OrderedDict[str, Upload] = OrderedDict()

    def __getitem__(self, key: str) -> Upload:
        with self._lock:
            return self._kept[key]

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(list(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, upload: Upload) -> None:
        """Keep an upload."""
        with self._lock:
            self._kept.pop(upload.key, None)
            self._kept[upload.key] = upload
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)


def read_upload(data: bytes, name: str, choices: Choices) -> Upload:
    """The model in the bytes of a file. name: as the browser says it, for messages alone.

    Raises SpecError for what describes no model, UnknownName for names that the catalog does not have.
    """
    label = file_label(name)
    if len(data) > LARGEST:
        raise unusable(label, f"more than {LARGEST:,} bytes")
    if not data.strip():
        raise unusable(label, "the file is empty")
    if data[:4] == b"GGUF":
        model, spec = _from_gguf(data, label, choices)
    elif len(data) > LARGEST_TEXT:
        hint = "a config.json or a spec is a few kilobytes; of a GGUF file the header is enough"
        raise unusable(label, f"{len(data):,} bytes, more than the limit of {LARGEST_TEXT:,}", hint)
    elif data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        model, spec = _from_json(data, label, choices)
    else:
        _check(parse_bytes(data, label), label, choices)
        model, spec = load.model_from_bytes(data, label, lambda base: choices.model(base)[0]), data.decode("utf-8-sig")
    check_layers(model)
    key = f"upload-{hashlib.sha256(data).hexdigest()[:16]}"
    return Upload(key=key, label=label, model=_renamed(model, label), spec=spec, choices=choices)


def check_layers(model: Model) -> None:
    """Raises SpecError for a model of so many layers that its answer would take long."""
    if model.n_layers > MOST_LAYERS:
        raise SpecError(f"{quote(model.name)} has {model.n_layers:,} layers, more than {MOST_LAYERS:,}", code="E110")


def file_label(name: str) -> str:
    """The last part of a file's name, without anything that could be read as markup or as a path."""
    last = PurePosixPath(name.replace("\\", "/")).name
    kept = re.sub(r"[^\w.+ -]", "_", inert(last[:400])).strip(". ")
    return shorten(kept, 80) or "upload"


def _renamed(model: Model, label: str) -> Model:
    """The model under a name that is safe to show: its own, or that of the file."""
    name = re.sub(r"[^\w.+ -]", "_", inert(str(model.title or model.name)[:200])).strip()
    return model.model_copy(update={"name": shorten(name, 60) or label, "title": None})


def _from_gguf(data: bytes, label: str, choices: Choices) -> tuple[Model, str]:
    from archsim.importers.gguf.describe import document_of
    from archsim.importers.gguf.reader import parse_gguf

    return _from_document(document_of(parse_gguf(data, label)), label, choices)


def _from_json(data: bytes, label: str, choices: Choices) -> tuple[Model, str]:
    try:
        document = parse_json(label, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise unusable(label, f"not UTF-8 text (byte {error.start:,})") from None
    if not isinstance(document, dict):
        raise SpecError(f"{quote(label)} is not a mapping", code="E109")
    if "layers" in document or not {"model_type", "text_config"} & document.keys():
        _check(document, label, choices)
        text = data.decode("utf-8-sig")
        return load.model_from_bytes(data, label, lambda base: choices.model(base)[0]), text
    from archsim.importers.hf.describe import from_config

    return _from_document(from_config(document, PurePosixPath(label).stem), label, choices)


def _from_document(document: JsonObject, label: str, choices: Choices) -> tuple[Model, str]:
    from archsim.importers.hf.text import spec_text

    _check(document, label, choices)
    return load.model_from(document, label), spec_text(document, f"From {label}")


def _check(document: Mapping[str, object], label: str, choices: Choices) -> None:
    """Refuses a document that is larger than any spec, before it is validated, and formats that are no names."""
    level: list[Mapping[str, object] | list[object]] = [document]
    count = 0
    while level:
        count += sum(len(one) for one in level)
        if count > MOST_VALUES:
            raise SpecError(f"{quote(label)} has more than {MOST_VALUES:,} values", code="E111")
        level = [inner for one in level for inner in _inside(one) if isinstance(inner, (Mapping, list))]
    _check_formats(document, choices)


def _inside(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()


def _check_formats(document: Mapping[str, object], choices: Choices) -> None:
    """Refuses a weight format that is no name of the catalog, or put together of such names: never a path."""
    named = document.get("weights")
    for text in named.values() if isinstance(named, Mapping) else ():
        for part in re.split(r"[=@+]|\d+\*", str(text)[:2000]):
            if part.strip() and not re.fullmatch(r"[1-9][0-9]?bit|fp4", part.strip()) and "=" not in part:
                _check_format(part.strip(), str(text), choices)


def _check_format(part: str, text: str, choices: Choices) -> None:
    if re.match(re.escape(part) + "=", text):
        return  # the label of a format that is put together
    choices.format(part)
