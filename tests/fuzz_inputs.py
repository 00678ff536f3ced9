"""Random inputs: files and options that were valid, with a few things in them changed.

Every input is made from its number alone, so that one that fails can be made again.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import struct
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from accuracy import tables

from archsim.spec.catalog import files as catalog_files

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "tests" / "importers" / "configs"

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 0.5, -0.0, 1e-300, 1e308, -1e308, 2**31, 2**53 + 1, 2**63, 2**64, 10**30,
    10**400, "", " ", "x", "x" * 1000, "no", "-1", "0", "1e400", "nan", ".nan", ".inf", "80 GB", "3.35 TB/s",
    "1 TFLOP/s", "0 GB", "-5 us", "1e30 GB", "gqa", "mla", "bf16", "fp8", "int4_g32", "gguf_q4_k_m", "vllm", "h100",
    "../../etc/passwd", "/dev/zero", "a\0b", "\ud800", "\u202e", "\x1b[2J", "=1+1", "{}", "[", "*a", "&a", "%s%n", "ß",
    [], {}, [[]], [None], {"": ""}, {"kind": "gqa"}, {"kind": None}, [1, 2, 3], ["x"] * 50, {"a": {"b": {"c": 1}}},
    float("nan"), float("inf"), -float("inf"),
)  # fmt: skip
"""What is put where something else belongs."""

SNIPPETS = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\t", b"\r", b"\n---\n", b"!!python/object:os.system ", b"&a ", b"*a",
    b"<<: ",
    b"{" * 200, b"[" * 200, b"- " * 100, b"1e999", b"9" * 400, b"'", b'"', b": ", b"#", b"| ", b"> ", b"?", b"@", b"`",
    b",,,,", b"\x1b[31m", b"null", b"\\ud800", b"\xed\xa0\x80", b"=", b"1_000", b"0x10", b"1:30", b"2026-01-01",
)  # fmt: skip


@dataclass(frozen=True)
class Input:
    """One command line, the files that it needs (path in its folder -> bytes), and what it is, in words."""

    words: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    kind: str = ""


Random = random.Random


# ---------------------------------------------------------------------- mutations
def bent_bytes(rng: Random, data: bytes) -> bytes:
    """Bytes with pieces changed, cut out, doubled, or put in."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(7):
            case 0:
                found[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del found[at : at + rng.choice((1, 4, 40, 400))]
            case 2:
                found[at:at] = rng.choice(SNIPPETS)
            case 3:
                piece = found[at : at + rng.choice((1, 8, 80))]
                found[at:at] = piece * rng.choice((1, 2, 10))
            case 4:
                del found[at:]
            case 5:
                found[at : at + 8] = struct.pack("<Q", rng.choice((0, 1, 2**31, 2**40, 2**63, 2**64 - 1)))
            case _:
                lines = bytes(found).split(b"\n")
                i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
                lines[i], lines[j] = lines[j], lines[i]
                found = bytearray(b"\n".join(lines))
    return bytes(found)


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    found: list[tuple[Any, Any]] = []
    left = [document]
    while left:
        value = left.pop()
        if isinstance(value, (dict, list)):
            keys = list(value) if isinstance(value, dict) else range(len(value))
            found += [(value, key) for key in keys]
            left += [value[key] for key in keys]
    return found


def numbers(all_places: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The places of whole numbers."""
    return [(c, k) for c, k in all_places if isinstance(c[k], int) and not isinstance(c[k], bool)]


def bent(rng: Random, document: Any) -> Any:
    """A document with values replaced, scaled, removed, renamed, moved or nested; in half of all, numbers alone."""
    document = json.loads(json.dumps(document, default=str))
    mild = rng.random() < 0.5
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        all_places = places(document)
        if not all_places:
            return deepcopy(rng.choice(VALUES))
        container, key = rng.choice(all_places)
        value = container[key]
        if mild and not (isinstance(value, int) and not isinstance(value, bool)) and numbers(all_places):
            container, key = rng.choice(numbers(all_places))
            value = container[key]
        if mild and isinstance(value, int) and not isinstance(value, bool):
            container[key] = rng.choice(
                (value + 1, value - 1, value * 2, value // 2, value * 1000, value * 10**9, 1, 0)
            )
            continue
        match rng.randrange(9):
            case 0 | 1 | 2:
                container[key] = deepcopy(rng.choice(VALUES))
            case 3:
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    container[key] = value * rng.choice((-1, 0, 2, 3, 1000, 10**6, 10**12, 0.5, 1 / 3))
            case 4:
                del container[key]
            case 5:
                if isinstance(container, dict):
                    container[rng.choice(("kind", "name", "extends", "x", "", key + "s", key[:-1]))] = container.pop(
                        key
                    )
            case 6:
                other, where = rng.choice(all_places)
                container[key] = json.loads(json.dumps(other.get(where) if isinstance(other, dict) else where))
            case 7:
                container[key] = [value] * rng.choice((1, 2, 50))
            case _:
                for _ in range(rng.choice((1, 10, 70, 150))):
                    value = {"a": value} if rng.random() < 0.5 else [value]
                container[key] = value
    return document


def as_text(rng: Random, document: Any) -> bytes:
    """A document as YAML or JSON."""
    if rng.random() < 0.5:
        try:
            return yaml.safe_dump(document, sort_keys=False, allow_unicode=False).encode("utf-8", "surrogatepass")
        except (yaml.YAMLError, RecursionError):
            pass
    return json.dumps(document).encode("utf-8", "surrogatepass")


def bent_file(rng: Random, path: Path) -> bytes:
    """A YAML or JSON file, its text bent or what it says."""
    data = path.read_bytes()
    if rng.random() < 0.35:
        return bent_bytes(rng, data)
    return as_text(rng, bent(rng, loaded(path)))


@cache
def loaded(path: Path) -> Any:
    """What a YAML or JSON file says."""
    return yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def names(kind: str) -> list[Path]:
    """The files of one kind that archsim comes with."""
    found = (path.resolve() for path in catalog_files(kind).values())  # type: ignore[arg-type]
    return sorted(path for path in found if path.is_relative_to(ROOT))


# ---------------------------------------------------------------------- kinds of input
def of_model(rng: Random) -> Input:
    """A spec."""
    data = bent_file(rng, rng.choice(names("models")))
    if rng.random() < 0.1:
        data += f"\nextends: {rng.choice(('gpt2-small', 'm.yaml', '/etc/passwd', '../table.csv', 'none'))}\n".encode()
    return Input(with_model(rng, "m.yaml"), {"m.yaml": data}, "spec")


def of_device(rng: Random) -> Input:
    """A device or a machine."""
    words = rng.choice(("estimate gpt2-small --hw d.yaml", "show d.yaml", "fit gpt2-small --hw d.yaml",
                        "estimate llama2-7b --hw d.yaml --devices 2 --engine vllm --json"))  # fmt: skip
    return Input(tuple(words.split()), {"d.yaml": bent_file(rng, rng.choice(names("hw")))}, "device")


def of_config(rng: Random) -> Input:
    """A config.json, in its folder or under another name."""
    data = bent_file(rng, rng.choice(sorted(CONFIGS.glob("*.json"))))
    place, name = rng.choice((("config.json", "."), ("own/config.json", "own"), ("c.json", "c.json")))
    words = ("import", name) if rng.random() < 0.2 else with_model(rng, name)
    return Input(words, {place: data}, "config")


def of_gguf(rng: Random) -> Input:
    """A GGUF header."""
    data = bent_bytes(rng, rng.choice(gguf_headers()))
    return Input(with_model(rng, "m.gguf"), {"m.gguf": data}, "gguf")


def of_safetensors(rng: Random) -> Input:
    """An index with a shard beside it, or one file; and the config."""
    config = (CONFIGS / "qwen3-0.6b.json").read_bytes()
    header, index = tensors()
    if rng.random() < 0.2:
        config = bent_bytes(rng, config)
    if rng.random() < 0.5:
        header = bent(rng, header)
    else:
        index = bent(rng, index)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    shard = struct.pack("<Q", len(text)) + text + bytes(64)
    shard = bent_bytes(rng, shard) if rng.random() < 0.2 else shard
    listed = json.dumps(index).encode("utf-8", "surrogatepass")
    listed = bent_bytes(rng, listed) if rng.random() < 0.2 else listed
    name = rng.choice(("model.safetensors.index.json", "a.safetensors"))
    files = {"config.json": config, "a.safetensors": shard, "model.safetensors.index.json": listed}
    return Input(with_model(rng, name), files, "safetensors")


def of_table(rng: Random) -> Input:
    """A file of measurements: kernels, runs or serving points, as CSV, JSON or YAML, plain or packed."""
    rows: list[dict[str, Any]] = rng.choice((
        [tables.kernel(op) for op in rng.sample(list(tables.EXTENTS), 4)],
        [tables.run(metric) for metric in ("decode_tok_s", "ttft_ms", "tpot_ms", "weights_gib", "max_kv_tokens")],
        [tables.point(), tables.point(batch_size=8)],
    ))  # fmt: skip
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        row = rng.choice(rows)
        key = rng.choice(list(row))
        match rng.randrange(4):
            case 0:
                row.pop(key)
            case 1:
                row[rng.choice(("id", "x", "", key + " ", "time_us", "value"))] = rng.choice(VALUES)
            case _:
                row[key] = rng.choice(VALUES)
    form = rng.choice(("csv", "csv", "csv", "json", "yaml", "gz"))
    return Input(table_words(rng), {"t.csv": table_bytes(rng, rows, form)}, f"table as {form}")


def table_words(rng: Random) -> tuple[str, ...]:
    """A command that reads `t.csv`."""
    calibrate = "calibrate --from t.csv --dry-run"
    return tuple(rng.choice(("validate t.csv", "validate t.csv --json", "validate t.csv -q", calibrate)).split())


def table_bytes(rng: Random, rows: list[dict[str, Any]], form: str) -> bytes:
    """Rows in one of the forms, at times bent once more."""
    import gzip

    if form in ("csv", "gz"):
        stream = io.StringIO()
        columns = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(stream, columns, restval="")
        writer.writeheader()
        writer.writerows({k: str(v)[:500] for k, v in row.items()} for row in rows)
        data = stream.getvalue().encode("utf-8", "surrogatepass")
    else:
        document = rows if form == "json" else {"rows": rows}
        data = json.dumps(document).encode("utf-8", "surrogatepass")
        data = yaml.safe_dump(document).encode("utf-8", "surrogatepass") if rng.random() < 0.2 else data
    data = bent_bytes(rng, data) if rng.random() < 0.35 else data
    packed = gzip.compress(data) if form == "gz" else data
    return bent_bytes(rng, packed) if form == "gz" and rng.random() < 0.3 else packed


def of_engine(rng: Random) -> Input:
    """An engine's document in ./specs/engines."""
    path = rng.choice(names("engines"))
    words = f"{rng.choice(('fit', 'estimate'))} llama2-7b --hw h100 --engine {path.stem}"
    words = f"show {path.stem}" if rng.random() < 0.2 else words
    return Input(tuple(words.split()), {f"specs/engines/{path.name}": bent_file(rng, path)}, "engine")


def of_format(rng: Random) -> Input:
    """A number format in ./specs/formats."""
    path = rng.choice(names("formats"))
    words = f"{rng.choice(('count', 'estimate --hw h100', 'fit --hw rtx4090'))} llama2-7b --weights {path.stem}"
    return Input(tuple(words.split()), {f"specs/formats/{path.name}": bent_file(rng, path)}, "format")


OPTIONS = (
    "--batch", "--input-len", "--output-len", "--devices", "--tp", "--pp", "--ep", "--dp", "--weights",
    "--kv-cache-dtype", "--engine", "--set", "--hw", "--concurrency", "--max-model-len", "--context-len", "--where",
    "--pareto", "--columns", "--by", "--format", "--logits", "--gpu-memory-utilization", "--max-num-seqs",
    "--block-size", "--id", "--suite", "--budget", "--limit", "--max-median-ape", "--phase", "--orders", "--expect",
)  # fmt: skip
ARGUMENTS = (
    "0", "1", "-1", "8", "7", "1e3", "1.5", "999999999", "10**9", "9" * 30, "9" * 400, "nan", "inf", "", " ", ",",
    "1,2",
    "1-8*2", "1-0", "8-1", "1-9999999", "1-1e18", "1-100+0", "1-100*1", "32k", "1M", "1T", "auto", "all", "x", "a=b",
    "attention.n_kv_heads=4", "attention.n_kv_heads=0", "layers.repeat=-1", "layers.repeat=1000000000", "d_model=1e300",
    "layers=[]", "layers={}", "attention={kind: mla}", "vocab_size=null", "a.b.c.d=1", "=", "=1", "extends=x",
    "layers.0.ffn.d_ff=1", "fits", "tpot < 0.05", "tpot <", "1/0", "batch**batch**batch", "__import__('os')", "(" * 500,
    "bf16", "fp8", "gguf_q4_k_m", "mxfp4", "exl2_4.25bpw", "exl2_0bpw", "exl2_" + "9" * 400 + "bpw", "q8_0", "vllm",
    "vllm@0.22", "vllm@", "sglang@999", "llama.cpp", "h100", "h100,h100", "8xh100", "t4", "json", "csv", "html", "op",
    "\x1b[2J", "\u202e", "\ud800", "../..", ".", "/", "/dev/null", "~", "--", "-", "C001", "E101", "8m", "12%",
    "tpot,cost",
)  # fmt: skip
MODELS = ("gpt2-small", "llama2-7b", "mixtral-8x7b", "deepseek-v2-lite", "mamba-130m", "bert-base", "t5-small",
          "gpt-4",
          "no-such", "", "a/b", "x" * 5000)  # fmt: skip
COMMANDS = (
    "estimate M --hw h100", "count M", "fit M --hw t4", "fit --hw t4", "compare M gpt2-small --hw t4",
    "diff M gpt2-small", "evolve M gpt2-small --hw t4", "sweep M --hw t4", "trace M --hw t4", "explain M kv_cache",
    "explain M decode --hw t4", "show M", "list models", "list hw", "list x", "schema", "schema model",
    "explain E101", "import M", "claims --id C001", "survey", "doctor", "validate none.csv", "measure --list",
    "calibrate --from M", "report M --hw t4 --light --out r.html", "M", "",
)  # fmt: skip


def of_options(rng: Random) -> Input:
    """A command line with options that it may not take, and values that may mean nothing."""
    words = rng.choice(COMMANDS).replace("M", rng.choice(MODELS)).split(" ")
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        option = rng.choice(OPTIONS)
        words += [option, rng.choice(ARGUMENTS)] if rng.random() < 0.9 else [option]
    if rng.random() < 0.2:
        words.insert(rng.randrange(len(words) + 1), rng.choice(ARGUMENTS))
    if rng.random() < 0.3:
        words.append(rng.choice(("--json", "-q", "-v", "--no-color", "--help")))
    return Input(tuple(words), {}, "options")


SURFACE = ROOT / "tests" / "cli" / "surface.json"
BEGUN = {
    "estimate": "estimate M --hw h100", "fit": "fit M --hw t4", "count": "count M",
    "simulate": "simulate M --hw h100 --rate 2 --requests 40", "sweep": "sweep M --hw t4",
    "compare": "compare M gpt2-small --hw t4", "diff": "diff M gpt2-small", "evolve": "evolve M gpt2-small --hw t4",
    "trace": "trace M --hw t4", "train": "train M --hw a100 --devices 8", "advise": "advise M --hw t4",
    "design": "design --hw t4 --memory 2GB --context 1k --params 100M", "scaling": "scaling --compute 1e22",
    "show": "show M", "explain": "explain M decode --hw t4", "claims": "claims --id C002", "list": "list models",
    "import": "import M", "survey": "survey",
}  # fmt: skip
"""How a command line of each command may begin."""
MORE_ARGUMENTS = (
    "cheapest", "table", "runpod:spot", "2.5", "ttft=0.5,tpot=0.03", "ttft=", "p99:ttft=1", "gamma:2", "burst:1x2",
    "uniform:1-100", "normal:100,20", "measured", "3,1", "ngram:4", "mtp:1", "draft:gpt2-small", "0.7", "rate",
    "concurrency", "full", "selective", "lora", "qlora", "adamw", "adam8bit", "megatron", "1:1", "2x4", "400W", "DE",
    "time", "tpot", "memory", "light", "cdn", "inline", "spec.yaml", "r.html", "rows.csv", "1e12", "20T", "1024x1024x2",
)  # fmt: skip


def of_surface(rng: Random) -> Input:
    """A command with some of its own options, whose values may mean nothing."""
    surface = json.loads(SURFACE.read_text("utf-8"))
    command = rng.choice(sorted(BEGUN))
    words = [word.replace("M", rng.choice(MODELS)) if word == "M" else word for word in BEGUN[command].split(" ")]
    passed_over = {"--hub", "--ray", "--jobs"}  # the network, and processes of their own
    for _ in range(rng.choice((1, 1, 2, 3))):
        option = rng.choice([name for name in surface[command] if name not in passed_over])
        words += [option, rng.choice(ARGUMENTS + MORE_ARGUMENTS)] if rng.random() < 0.8 else [option]
    return Input(tuple(words), {}, "surface")


def with_model(rng: Random, name: str) -> tuple[str, ...]:
    """A command about the model in a file."""
    words = rng.choice((
        "count M", "count M --json", "count M --weights int4_g32", "estimate M --hw h100", "estimate M --hw t4 --json",
        "estimate M --hw h100 --devices 8 --tp 8 --batch 16 --engine vllm", "fit M --hw rtx4090 --engine llama.cpp",
        "fit M --hw h100 --engine vllm --json", "show M", "diff M gpt2-small", "explain M kv_cache",
        "sweep M --hw h100 --batch 1,8 --format csv", "compare M gpt2-small --hw h100", "estimate M --hw h100 --by op",
    ))  # fmt: skip
    return tuple(word.replace("M", name) if word == "M" else word for word in words.split())


KINDS: tuple[tuple[Callable[[Random], Input], int], ...] = (
    (of_model, 20), (of_device, 10), (of_config, 15), (of_gguf, 7), (of_safetensors, 6), (of_table, 12), (of_engine, 5),
    (of_format, 5), (of_options, 10), (of_surface, 10),
)  # fmt: skip
"""Kind of input -> its share in a hundred."""


TRACES = {
    "own.csv": "t_s,input,output\n" + "".join(f"{0.2 * i:.1f},{40 + 13 * i},{3 + i % 9}\n" for i in range(30)),
    "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    + "".join(f"2023-11-16 18:15:{i:02d}.6805900,{90 + 7 * i},{2 + i % 5}\n" for i in range(30)),
    "mooncake.jsonl": "".join(
        json.dumps({"timestamp": 300 * i, "input_length": 600, "output_length": 4, "hash_ids": [0, i % 4 + 1]}) + "\n"
        for i in range(30)
    ),
}
"""Recorded requests to begin with, by file."""
SERVERS = ("", "--engine vllm", "--engine sglang", "--engine trtllm", "--engine llamacpp", "--engine vllm@0.6",
           "--replicas 2 --router least-requests", "--disaggregate 1:1", "--kv-tokens 2000", "--speedup 100",
           "--prefix-cache warm", "--speculative ngram:2 --acceptance 0.5", "--chunked-prefill 64")  # fmt: skip


def of_trace(rng: Random) -> Input:
    """A trace with a few things in it changed, on some server, with options of `simulate` that may mean nothing."""
    name = rng.choice(sorted(TRACES))
    data = TRACES[name].encode()
    if rng.random() < 0.4:
        data = bent_bytes(rng, data)
    elif rng.random() < 0.5:
        lines = data.decode().splitlines()
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(lines))
            cells = lines[at].split(",")
            cells[rng.randrange(len(cells))] = str(rng.choice(VALUES)).encode("utf-8", "replace").decode()
            lines[at] = ",".join(cells)
        data = "\n".join(lines).encode()
    if rng.random() < 0.1:
        name, data = f"{name}.gz", gzip.compress(data)
    begin = f"simulate gpt2-small --hw t4 --replications 1 --requests 30 --trace {name} {rng.choice(SERVERS)}"
    words = begin.split()
    surface = json.loads(SURFACE.read_text("utf-8"))["simulate"]
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        option = rng.choice([name for name in surface if name not in ("--hub", "--ray", "--jobs")])
        words += [option, rng.choice(ARGUMENTS + MORE_ARGUMENTS)] if rng.random() < 0.9 else [option]
    return Input(tuple(words), {name: data}, "trace")


def make(seed: int, number: int, kind: str = "") -> Input:
    """The input of a number: of any kind, or one of `trace`."""
    rng = random.Random(f"{seed}:{number}")
    if kind == "trace":
        return of_trace(rng)
    (made,) = rng.choices([kind for kind, _ in KINDS], [share for _, share in KINDS])
    return made(rng)


# ---------------------------------------------------------------------- checkpoints to begin with
@cache
def gguf_headers() -> tuple[bytes, ...]:
    """Headers of small models."""
    import tempfile

    from importers import gguf_files

    found = []
    with tempfile.TemporaryDirectory() as folder:
        for i, (keys, shapes) in enumerate((gguf_files.llama(2), gguf_files.with_experts(*gguf_files.llama(2)))):
            path = gguf_files.write(Path(folder) / f"{i}.gguf", "llama", keys, shapes, tokens=4)
            found.append(path.read_bytes())
    return tuple(found)


@cache
def tensors() -> tuple[dict[str, Any], dict[str, Any]]:
    """The header of a file with all tensors of the config beside it, and an index that names the file."""
    from archsim.graph.tensor import numel
    from archsim.importers.opening import load_model
    from archsim.spec.stored_weights import stored_weights

    _, weights = stored_weights(load_model(str(CONFIGS / "qwen3-0.6b.json")))
    header, at = {}, 0
    for weight in weights:
        for layer in weight.layers:
            size = 2 * int(numel(weight.tensor))
            name = f"model.layers.{layer}.{weight.tensor.name}.weight"
            header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [at, at + size]}
            at += size
    return header, {"metadata": {"total_size": at}, "weight_map": dict.fromkeys(header, "a.safetensors")}
