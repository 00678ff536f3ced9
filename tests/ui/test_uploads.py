"""Uploads: what describes a model is read, everything else is answered with a message, and no file is opened."""

from __future__ import annotations

import builtins
import gzip
import io
import json
import os
import random
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from archsim.base.derived import cache_folder
from archsim.importers.gguf.reader import MAX_KEPT
from archsim.ui.choices import choices
from archsim.ui.uploads import LARGEST, LARGEST_TEXT, Uploads, file_label, read_upload
from archsim.ui.uploads_route import opened

KNOWN = choices(built_in=True)

CONFIG = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1000,
    "num_key_value_heads": 2, "intermediate_size": 512, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
    "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip

SPEC = """name: tiny
d_model: 64
vocab_size: 100
max_context: 128
layers:
  - repeat: 2
    norm: {kind: rmsnorm}
    attention: {kind: mha, n_heads: 4, d_head: 16}
    ffn: {kind: swiglu, d_ff: 128}
final_norm: {kind: rmsnorm}
head: {tied: true}
"""


def text(value: str) -> bytes:
    """A GGUF string."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


Tensors = list[tuple[str, tuple[int, ...], int]]
"""Name, extents and ggml type of each."""


def gguf(keys: list[tuple[str, int, bytes]], tensors: Tensors) -> bytes:
    """A GGUF header."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    body = b"".join(text(key) + struct.pack("<I", kind) + value for key, kind, value in keys)
    rows = b"".join(
        text(name)
        + struct.pack("<I", len(shape))
        + struct.pack(f"<{len(shape)}Q", *shape)
        + struct.pack("<IQ", kind, 0)
        for name, shape, kind in tensors
    )
    return head + body + rows


def small_gguf(**changes: int) -> bytes:
    """A llama of two layers; changes: of its sizes."""

    def whole(value: int) -> bytes:
        return struct.pack("<I", value % 2**32)

    size = {"blocks": 2, "heads": 4, "width": 64, "ff": 128, "vocab": 100, "kind": 1} | changes
    keys = [
        ("general.architecture", 8, text("llama")), ("general.name", 8, text("small")),
        ("llama.block_count", 4, whole(size["blocks"])), ("llama.attention.head_count", 4, whole(size["heads"])),
        ("llama.attention.head_count_kv", 4, whole(size["heads"])), ("llama.context_length", 4, whole(512)),
        ("llama.embedding_length", 4, whole(size["width"])), ("llama.feed_forward_length", 4, whole(size["ff"])),
        ("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
    ]  # fmt: skip
    d, kind = size["width"], size["kind"]
    tensors: Tensors = [
        ("token_embd.weight", (d, size["vocab"]), kind), ("output_norm.weight", (d,), 0),
        ("output.weight", (d, size["vocab"]), kind),
    ]  # fmt: skip
    for i in range(min(size["blocks"], 4)):
        tensors += [(f"blk.{i}.{name}.weight", (d, d), kind) for name in ("attn_q", "attn_k", "attn_v", "attn_output")]
        tensors += [(f"blk.{i}.{name}.weight", (d, size["ff"]), kind) for name in ("ffn_gate", "ffn_up")]
        tensors += [(f"blk.{i}.ffn_down.weight", (size["ff"], d), kind)]
        tensors += [(f"blk.{i}.{name}.weight", (d,), 0) for name in ("attn_norm", "ffn_norm")]
    return gguf(keys, tensors)


GOOD = [
    ("config.json", json.dumps(CONFIG).encode()), ("tiny.yaml", SPEC.encode()), ("small.gguf", small_gguf()),
    ("my.yml", b"\xef\xbb\xbf" + SPEC.encode()),
    ("longer.yaml", b"extends: llama3.1-8b\nname: longer\nmax_context: 4096\n"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data"), GOOD, ids=[name for name, _ in GOOD])
def test_a_model_is_read(name: str, data: bytes) -> None:
    """Its numbers are those of the same file on the command line, and its spec says the same again."""
    from archsim import api

    found = read_upload(data, name, KNOWN)
    again = read_upload(found.spec.encode(), "again.yaml", KNOWN)
    assert api.count(found.model).total == api.count(again.model).total > 10_000
    assert read_upload(data, name, KNOWN).key == found.key


def yaml_bombs() -> Iterator[tuple[str, bytes]]:
    """YAML that grows, nests, repeats, or asks for Python objects."""
    laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n"
    laughs += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    yield "laughs.yaml", (SPEC + laughs).encode()
    yield "self.yaml", b"name: &a [*a]\nlayers: *a\n"
    yield "merge.yaml", b"name: &a {b: 1}\nlayers:\n  <<: *a\n"
    for depth in (100, 10_000, 200_000):
        yield f"deep-{depth}.yaml", b"layers: " + b"[" * depth + b"]" * depth
        yield f"deep-map-{depth}.yaml", b"layers: " + b"{a: " * depth + b"1" + b"}" * depth
        yield f"deep-{depth}.json", b'{"layers": ' + b"[" * depth + b"]" * depth + b"}"
        yield f"open-{depth}.json", b'{"layers": ' * depth
    yield "indent.yaml", "".join(" " * i + "layers:\n" for i in range(3000)).encode()
    for tag in (
        "object/apply:os.system ['id']",
        "object/new:os.system [id]",
        "module:os",
        "name:os.system",
        "tuple [1]",
    ):
        yield "python.yaml", f"name: !!python/{tag}\nlayers: []\n".encode()
        yield "python-key.yaml", f"? !!python/{tag}\n: 1\n".encode()
    yield "many.yaml", b"---\n".join([SPEC.encode()] * 3)
    yield "anchors.yaml", ("layers:\n" + "".join(f"- &x{i} {{a: 1}}\n" for i in range(50_000))).encode()
    yield "keys.yaml", "".join(f"k{i}: 1\n" for i in range(100_000)).encode()
    yield "twice.yaml", (SPEC + SPEC).encode()
    yield "include.yaml", b"layers: !include /etc/passwd\n"
    yield "directive.yaml", b"%TAG ! tag:evil,2000:\n---\nlayers: !x 1\n"


def paths() -> Iterator[tuple[str, bytes]]:
    """Documents that name files."""
    places = ["/etc/passwd", "../../../../etc/passwd", "/etc/hosts", "./specs/models/gpt2-small.yaml", "~/.ssh/id_rsa",
              "file:///etc/passwd", "/proc/self/environ", "C:\\Windows\\win.ini", "-", "evil.py:Class", "/dev/zero",
              "transformers:llama", "specs/models/gpt2-small.yaml", "\u0000/etc/passwd",
              "http://127.0.0.1/x.yaml"]  # fmt: skip
    for place in places:
        quoted = json.dumps(place)
        yield "extends.yaml", f"extends: {quoted}\nname: x\n".encode()
        yield "extends.json", json.dumps({"extends": place, "layers": []}).encode()
        yield "format.yaml", (SPEC + f"weights: {{default: {quoted}}}\n").encode()
        yield (
            "format-part.yaml",
            (SPEC + "weights: {linear: " + json.dumps(f"mine=3*q4_k+5*{place}@fp8") + "}\n").encode(),
        )
        yield "quant.json", json.dumps(CONFIG | {"quantization_config": {"quant_method": place}}).encode()
        yield "type.json", json.dumps(CONFIG | {"model_type": place}).encode()


def headers() -> Iterator[tuple[str, bytes]]:
    """GGUF files that lie."""
    good = small_gguf()
    yield "short.gguf", good[:20]
    for cut in (24, 40, 100, 300, len(good) - 3):
        yield f"cut-{cut}.gguf", good[:cut]
    for at, value in ((8, 2**63), (16, 2**63), (8, 2**20), (16, 2**20), (24, 2**62)):
        yield f"count-{at}.gguf", good[:at] + struct.pack("<Q", value) + good[at + 8 :]
    yield "version.gguf", b"GGUF" + struct.pack("<I", 99) + good[8:]
    yield "no-keys.gguf", gguf([], [])
    yield "unknown.gguf", gguf([("general.architecture", 8, text("../../etc/passwd"))], [])
    yield "nested.gguf", gguf([("x", 9, struct.pack("<IQ", 9, 2**40))], [])
    yield "array.gguf", gguf([("x", 9, struct.pack("<IQ", 4, 2**61))], [])
    yield "strings.gguf", gguf([("x", 9, struct.pack("<IQ", 8, 2**33))], [])
    yield "key.gguf", gguf([("k" * (MAX_KEPT + 1), 4, struct.pack("<I", 1))], [])
    for kind in (31, 77, 2**31):
        yield f"kind-{kind}.gguf", small_gguf(kind=kind)
    for changes in ({"blocks": 2**31}, {"heads": 0}, {"heads": 2**31}, {"width": 2**40}, {"vocab": 0}, {"blocks": 3000},
                    {"blocks": 0}, {"ff": 2**39}, {"heads": 7}):  # fmt: skip
        yield "size.gguf", small_gguf(**changes)
    yield "model-00002-of-00003.gguf", good


def configs() -> Iterator[tuple[str, bytes]]:
    """Configs with impossible values."""
    values: list[object] = [0, -1, 2**80, 1e308, None, "x", [], {}, True, "9" * 5000, [[1]], {"a": {"b": 1}}]
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        for value in values:
            yield f"{key}.json", json.dumps(CONFIG | {key: value}).encode()
    yield "nan.json", b'{"model_type": "llama", "hidden_size": NaN}'
    yield "infinity.json", b'{"model_type": "llama", "hidden_size": -Infinity}'
    yield "digits.json", b'{"model_type": "llama", "hidden_size": ' + b"9" * 100_000 + b"}"
    yield "many-layers.json", json.dumps(CONFIG | {"num_hidden_layers": 10**6}).encode()
    yield "list.json", b"[1, 2, 3]"
    yield "string.json", b'"model"'


def bytes_of_all_kinds() -> Iterator[tuple[str, bytes]]:
    """What is no text, or no model."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../config.json", b"0" * 2**22)
    yield "bomb.zip", packed.getvalue()
    yield "bomb.json", gzip.compress(b"0" * 2**22)
    yield "tensors.safetensors", struct.pack("<Q", 2**62) + b"{}"
    yield "latin.yaml", SPEC.replace("tiny", "t\xefny").encode("latin-1")
    yield "utf16.yaml", SPEC.encode("utf-16")
    yield "null.yaml", SPEC.encode() + b"\0"
    yield "surrogate.json", b'{"model_type": "\\ud800", "layers": 1}'
    yield "empty.yaml", b""
    yield "blank.json", b" \n\t "
    yield "large.yaml", b"#" * (LARGEST_TEXT + 1)
    yield "huge.gguf", b"GGUF" + b"\0" * LARGEST
    yield "device.yaml", b"schema: archsim.hardware/1\nid: x\ncompute: {}\n"
    yield "page.html", b"<script>alert(1)</script>"
    yield "shell.yaml", b"name: $(id)\nlayers: `id`\n"
    rng = random.Random(3)
    for i in range(20):
        yield f"noise-{i}.json", rng.randbytes(rng.randint(1, 4000))
        yield f"noise-{i}.gguf", b"GGUF" + struct.pack("<I", 3) + rng.randbytes(rng.randint(16, 4000))


HOSTILE = [*yaml_bombs(), *paths(), *headers(), *configs(), *bytes_of_all_kinds()]


@pytest.fixture
def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every file that is opened from here on, those of archsim, its cache and of Python left out."""
    found: list[str] = []
    clone, python = str(Path(__file__).resolve().parents[2]), os.path.realpath(os.__file__).rpartition("/lib/")[0]
    own = (clone, python, os.path.realpath(cache_folder()))
    site = str(Path(pytest.__file__).resolve().parents[1])

    def watch(real: Callable[..., object]) -> Callable[..., object]:
        def open_(path: object, *args: object, **options: object) -> object:
            name = os.path.realpath(str(path)) if isinstance(path, (str, bytes, os.PathLike)) else ""
            if name and not name.startswith((*own, site)):
                found.append(name)
            return real(path, *args, **options)

        return open_

    monkeypatch.setattr(builtins, "open", watch(builtins.open))
    monkeypatch.setattr(io, "open", watch(io.open))
    monkeypatch.setattr(os, "open", watch(os.open))
    return found


def test_there_are_two_hundred() -> None:
    """As many as were promised."""
    assert len(HOSTILE) >= 200


@pytest.mark.slow
def test_hostile_uploads_read_nothing_and_say_why(opened_files: list[str]) -> None:
    """Each is refused with a sentence, in a moment; one that happens to be a model has sane sizes."""
    for name, data in HOSTILE:
        started = time.process_time()
        found, message = opened(data, name, KNOWN)
        assert time.process_time() - started < 5, name
        assert message and message.isprintable() and len(message) <= 600, (name, message)
        assert "root:" not in message and "Traceback" not in message
        if found is not None:
            assert name.endswith(("type.json", "quant.json", "heads.json", "size.json", "layers.json")), (name, message)
    assert opened_files == []


NAMES = [
    "../../etc/passwd", "..\\..\\boot.ini", "/etc/passwd", "<img src=x onerror=alert(1)>.json", "a" * 5000 + ".yaml",
    "\x1b[31mred.json", "con.json\x00.yaml", "  ", "", "....//....//x.yaml", "𝕏.gguf", "%2e%2e%2fx",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_is_a_label(name: str) -> None:
    """Whatever a file is called, what is shown is short, without markup and without a path."""
    label = file_label(name)
    assert 0 < len(label) <= 80 and not set(label) & set("/\\<>&\"'\x00\x1b") and not label.startswith(".")
    found = read_upload(json.dumps(CONFIG).encode(), name, KNOWN)
    assert not set(found.model.name) & set("/\\<>&\"'\x00\x1b") and found.key.startswith("upload-")


def test_the_oldest_upload_goes_first() -> None:
    """The number that is kept is bounded."""
    kept = Uploads(most=2)
    for size in (8, 16, 32):
        kept.add(read_upload(json.dumps(CONFIG | {"vocab_size": 1000 + size}).encode(), "config.json", KNOWN))
    assert len(kept) == 2 and all(kept[key].label == "config.json" for key in kept)


def test_the_route_takes_bytes_and_nothing_else() -> None:
    """An upload becomes a model that can be picked; a form, a large body and a foreign page are refused."""
    pytest.importorskip("dash")
    from archsim.ui.server import Site, make_app

    client = make_app(Site()).server.test_client()
    place = {"base_url": "http://localhost", "content_type": "application/octet-stream"}
    found = client.post(
        "/upload", data=json.dumps(CONFIG).encode(), headers={"X-File-Name": "my%20config.json"}, **place
    )
    assert found.status_code == 200
    key = found.json["key"]
    query = {"query_string": f"model={key}&hw=t4", "base_url": "http://localhost"}
    assert client.get("/candidate/1/estimate.json", **query).json["params"]["total"] > 10_000
    assert "From my config.json" in client.get("/candidate/1/model.yaml", **query).text
    assert client.post("/upload", data=b"!!python/object:os.system", **place).status_code == 422
    assert client.post("/upload", data={"a": "b"}, base_url="http://localhost").status_code == 415
    large = {"headers": {"Content-Length": str(2**40)}, **place}
    assert client.post("/upload", data=b"", **large).status_code == 413
    foreign = {"headers": {"Origin": "http://evil.example"}, **place}
    assert client.post("/upload", data=b"x", **foreign).status_code == 403
