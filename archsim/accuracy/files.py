"""Files of measurements: which of the kinds one is, told by its columns, and its rows less what was measured.

What a predictor sees (`Questions`) never holds a measured value: those are taken out while the file is read.
"""

from __future__ import annotations

import csv
import io
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from archsim.accuracy.question import number
from archsim.accuracy.rows import Kind
from archsim.accuracy.table import open_text
from archsim.accuracy.tool_output import is_tool_output, tool_rows
from archsim.base.diagnostics import quote, shorten
from archsim.base.errors import SpecError
from archsim.base.input_file import is_folder, parse_json, unusable
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.spec.loader import parse_text

HEADING = re.compile(r"[\w .%/()-]{0,60}")
"""The name of a column, as opposed to YAML or JSON."""
MAX_HEADER = 1 << 16
"""Characters of a table's first line."""
LARGEST_JSON = 32 * 2**20
"""Characters of a JSON document that are read."""

SIGNS: Mapping[Kind, tuple[frozenset[str], ...]] = {
    "kernels": (frozenset({"op", "device"}),),
    "loaded": (frozenset({"arrival", "isl", "osl", "engine"}),),
    "requests": (frozenset({"t_s", "input", "output"}),),
    "serving": (frozenset({"isl", "osl", "concurrency"}), frozenset({"isl", "osl", "batch_size"})),
    "training": (frozenset({"model", "metric", "seq_len"}),),
    "energy": (frozenset({"model", "device", "power_w"}), frozenset({"model", "device", "j_per_output_token"})),
    "runs": (frozenset({"model", "metric"}),),
}
"""Columns that make a file of a kind: all of one set."""

MEASURED: Mapping[Kind, Mapping[str, tuple[str, ...]]] = {
    "kernels": {"time_us": ("time_us",)},
    "loaded": {
        name: (name,)
        for name in ("ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_mean_ms", "tpot_p50_ms", "output_tok_s")
    },
    "requests": {"ttft_ms": ("ttft_ms",), "e2e_ms": ("e2e_ms",)},
    "serving": {"tpot_ms": ("silicon_tpot_ms", "tpot_ms"), "ttft_ms": ("silicon_ttft_ms", "ttft_ms")},
    "training": {"value": ("value", "measured")},
    "energy": {name: (name,) for name in ("power_w", "j_per_output_token")},
    "runs": {"value": ("value", "measured")},
}
"""Metric -> columns that hold what was measured; the first that is there."""

SYNONYMS = {"input_len": "isl", "output_len": "osl", "hw": "device"}
"""Columns by the names of archsim's own options."""

KNOWN: Mapping[Kind, tuple[str, ...]] = {
    "kernels": (
        *("op", "device", "dtype", "kv_dtype", "engine", "kernel", "m", "n", "k", "batch", "seq_q", "seq_kv"),
        *("heads", "kv_heads", "head_dim", "window", "experts", "topk", "hidden", "inter", "tp", "ep", "n_gpus"),
        "bytes",
    ),
    "serving": (
        *("model_path", "model", "system", "device", "backend", "engine", "backend_version", "engine_version"),
        *("precision", "weights_dtype", "kv_dtype", "isl", "osl", "gemm_quant_mode", "moe_quant_mode"),
        *("batch_size", "concurrency", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size"),
        *("parallel_suspect", "origin", "measured"),
    ),
    "loaded": (
        *("id", "model", "device", "n_devices", "tp", "pp", "ep", "dp_attention", "disaggregated", "speculative"),
        *(f"{pool}_{name}" for pool in ("prefill", "decode") for name in ("devices", "tp", "pp", "ep", "workers")),
        *("weights", "kv_dtype", "engine", "engine_version", "arrival", "request_rate", "concurrency", "n_requests"),
        *("isl", "osl", "lengths", "flags", "source", "date", "notes", "not_modelled"),
    ),
    "training": (
        *("id", "model", "device", "n_devices", "tp", "pp", "vpp", "cp", "ep", "dp", "zero_stage", "fsdp", "seq_len"),
        *("micro_batch", "global_batch", "grad_accum", "num_microbatches", "precision", "activation_checkpointing"),
        *("sequence_parallel", "tokens_trained", "metric", "unit", "source", "stack", "notes"),
    ),
    "requests": ("id", "t_s", "input", "output", "model", "device", "engine", "tp"),
    "energy": (
        *("id", "model", "device", "n_devices", "weights", "kv_dtype", "engine", "engine_version", "task", "tp", "ep"),
        *("attention_dp", "dp", "pp", "max_num_seqs", "avg_batch", "avg_input_len", "isl", "avg_output_len", "osl"),
        "arch",
    ),
    "runs": (
        *("id", "model", "device", "n_devices", "tp", "pp", "ep", "dp", "weights_dtype", "kv_dtype", "engine"),
        *("engine_version", "metric", "isl", "osl", "batch", "definition", "quality", "gpu_memory_utilization"),
        *("max_model_len", "device_total_gib", "unit", "not_modelled"),
    ),
}
"""Columns that a prediction may look at; every other one is left unread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A file's rows. ids: of all rows. questions: by column, as text or plain values, without what was measured.
    measured: by metric; None where a row has no number. models: dimensions of models that the file describes, by name.
    """

    kind: Kind
    name: str
    ids: list[str]
    questions: dict[str, list[Any]]
    measured: dict[str, list[float | None]]
    models: JsonMapping = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def question(self, row: int) -> JsonObject:
        """One row's columns that are not empty."""
        return {name: column[row] for name, column in self.questions.items() if column[row] not in (None, "")}

    def sample(self, limit: int | None, seed: int = 0) -> Table:
        """At most `limit` rows, drawn with a fixed seed and kept in the file's order."""
        if limit is None or limit >= len(self):
            return self
        return self.take(sorted(random.Random(seed).sample(range(len(self)), limit)))

    def take(self, rows: Sequence[int]) -> Table:
        """Some of the rows, by their numbers."""
        return replace(
            self, ids=[self.ids[i] for i in rows],
            questions={name: [column[i] for i in rows] for name, column in self.questions.items()},
            measured={name: [column[i] for i in rows] for name, column in self.measured.items()},
        )  # fmt: skip


def read_table(path: Path) -> Table:
    """The table in a file. Raises SpecError (E109) for one that is of no kind."""
    text = _text(path)
    if text.lstrip()[:1] not in ("{", "[") and _is_csv(text, path):
        return _table(path, *_csv(text, path))
    document = _json(text, path) if text.lstrip()[:1] in ("{", "[") else _yaml(text, path)
    described = document.get("models") if isinstance(document, Mapping) else None
    table = _table(path, *_records(document, path))
    return replace(table, models=described) if isinstance(described, Mapping) else table


def tables(path: Path) -> list[Table]:
    """The tables of a file, or of every file of a folder that is one (others there are passed over)."""
    if not is_folder(path):
        return [read_table(path)]
    found = []
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        if file.suffix not in (".csv", ".gz", ".yaml", ".yml", ".json", ".jsonl"):
            continue
        try:
            found.append(read_table(file))
        except SpecError:
            continue
    if not found:
        raise SpecError(f"no file of measurements in {quote(str(path), 200)}", code="E109", hints=(HINT,))
    return found


WORDS: Mapping[Kind, str] = {
    "kernels": "a kernel table", "loaded": "runs under load", "requests": "a log of requests",
    "serving": "a serving table", "training": "a list of training runs", "energy": "a table of power",
    "runs": "a run list",
}  # fmt: skip

HINT = (
    "a kernel table has `op` and `device`, a run list `model` and `metric`, "
    "a serving table `isl`, `osl` and `concurrency`, a log of requests `t_s`, `input` and `output`, a list of training "
    "runs `model`, `metric` and `seq_len`, a table of power `model`, `device` and `power_w`"
)


def _text(path: Path) -> str:
    try:
        with open_text(path) as stream:
            text = stream.read()
    except UnicodeDecodeError:
        raise unusable(path, "not UTF-8 text") from None
    if "\0" in text[:MAX_HEADER]:
        raise unusable(path, "a binary file, not a table")
    return text


def kind_of(columns: Iterable[str]) -> Kind | None:
    """The kind that has these columns."""
    present = set(columns)
    return next((kind for kind, signs in SIGNS.items() if any(sign <= present for sign in signs)), None)


def _is_csv(text: str, path: Path) -> bool:
    """Whether a text is a table: by its first line, or by the name of the file."""
    try:
        header = [name.strip() for name in next(csv.reader([text.split("\n", 1)[0].rstrip("\r")]), [])]
    except csv.Error:  # a field longer than any header's
        return False
    named = path.name.lower().removesuffix(".gz").endswith(".csv") and len(header) > 1
    return (
        (named and all(map(HEADING.fullmatch, header)))
        or kind_of(_own_names(header)) is not None
        or is_tool_output(header)
    )


def _own_names(columns: Sequence[str]) -> list[str]:
    """Columns with archsim's other names for them in its words."""
    return [SYNONYMS[name] if SYNONYMS.get(name, name) not in columns else name for name in columns]


def _csv(text: str, path: Path) -> tuple[list[str], Iterable[Sequence[Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    header = [name.strip() for name in next(reader)]
    if double := {name for name in header if name and header.count(name) > 1}:
        raise unusable(path, f"the column {quote(min(double))} occurs twice")
    return header, _check_table(reader, len(header), path)


def _check_table(reader: Any, width: int, path: Path) -> Iterable[Sequence[str]]:
    try:
        for line in reader:
            if len(line) == width:
                yield line
            elif line:
                raise unusable(path, f"line {reader.line_num:,} has {len(line)} fields, the header {width}")
    except csv.Error as error:
        raise unusable(path, f"line {reader.line_num:,}: {error}") from None


def _json(text: str, path: Path) -> Any:
    """A JSON document, or a list of those that stand on lines of their own."""
    if len(text) > LARGEST_JSON:
        raise unusable(path, f"{len(text):,} characters of JSON, more than the limit of {LARGEST_JSON:,}")
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) > 1 and all(line.startswith("{") and line.rstrip().endswith("}") for line in lines):
        return [parse_json(path, line) for line in lines]
    return parse_json(path, text)


def _yaml(text: str, path: Path) -> Any:
    return parse_text(text, str(path))


def _records(document: object, path: Path) -> tuple[list[str], Iterable[Sequence[Any]]]:
    """Mappings of a list, or of the `rows` of a mapping. What the document says of all rows stands for each."""
    shared: JsonObject = {}
    if isinstance(document, Mapping) and isinstance(document.get("rows"), list):
        shared = {k: v for k, v in document.items() if k != "rows" and isinstance(v, (str, int, float, type(None)))}
        document = document["rows"]
    elif isinstance(document, Mapping) and is_tool_output(document):
        document = [document]
    if not isinstance(document, list) or not all(isinstance(row, Mapping) for row in document):
        raise unusable(path, "neither a table with a known header nor `rows` of measurements", HINT)
    return _by_column(document, shared)


def _by_column(
    records: Sequence[JsonMapping], shared: JsonMapping | None = None
) -> tuple[list[str], Iterable[Sequence[Any]]]:
    """Mappings as a header and rows. shared: what stands for each of them."""
    shared = shared or {}
    columns = list(dict.fromkeys([*shared, *(str(name) for row in records for name in row)]))
    return columns, ([row.get(name, shared.get(name)) for name in columns] for row in records)


def _hints(columns: Sequence[str]) -> tuple[str, ...]:
    """What the kind lacks that columns come nearest to, and what each kind needs."""
    present = set(columns)
    signs = [(kind, sign) for kind, several in SIGNS.items() for sign in several if sign & present]
    if not signs:
        return (HINT,)
    kind, sign = max(signs, key=lambda one: (len(one[1] & present) / len(one[1]), len(one[1])))
    lacks = ", ".join(f"`{name}`" for name in sorted(sign - present))
    return (f"for {WORDS[kind]} it lacks {lacks}", HINT)


def _table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    if is_tool_output(columns):
        return _table(path, *_by_column(tool_rows([dict(zip(columns, row, strict=True)) for row in rows])))
    columns = _own_names(columns)
    kind = kind_of(columns)
    if kind is None:
        shown = ", ".join(list(columns)[:12]) or "none"
        raise unusable(path, f"its columns are those of no kind of measurement: {shown}", *_hints(columns))
    index = {name: i for i, name in enumerate(columns)}
    held = {
        metric: index[next(name for name in names if name in index)]
        for metric, names in MEASURED[kind].items()
        if any(name in index for name in names)
    }
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    count = len(by_column[0])
    known = [name for name in KNOWN[kind] if name in index and index[name] not in held.values()]
    return Table(
        kind=kind, name=path.name, ids=_ids(by_column[index["id"]] if "id" in index else [None] * count),
        questions={name: [_plain(value) for value in by_column[index[name]]] for name in known},
        measured={
            metric: _numbers(by_column[held[metric]]) if metric in held else [None] * count
            for metric in MEASURED[kind]
        },
    )  # fmt: skip


def _ids(own: Iterable[object]) -> list[str]:
    """Each row's own id, else its number in the file."""
    return [str(i) if name in (None, "") else str(name) for i, name in enumerate(own)]


def _plain(value: object) -> object:
    """A field as text or a plain value; a list or mapping, which no field is, as the text that will be refused."""
    return shorten(str(value)) if isinstance(value, (list, dict)) else value


def _numbers(column: Iterable[object]) -> list[float | None]:
    return [number(value) for value in column]
