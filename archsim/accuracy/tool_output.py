"""What measuring tools write, in the columns of the tables that archsim reads.

`vllm bench serve --save-result` and SGLang's `bench_serving --output-file` become runs under load; with the requests'
own times (`--save-detailed`) an open load of vLLM becomes a log of requests. `llama-bench -o json|jsonl|csv` becomes a
run list. Fields as of vLLM 0.33 (benchmarks/serve.py), SGLang 0.5.23 (benchmark/serving.py) and llama.cpp's
tools/llama-bench/README.md at 08d0baa. What such a file does not say (mostly the device) is left empty.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath

from archsim.accuracy.question import model_of, number
from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.engines.names import engine_and_version
from archsim.spec.catalog import is_known

SERVED = frozenset({"completed", "total_input_tokens", "total_output_tokens", "output_throughput", "request_rate"})
"""Fields of a run of a load generator."""

LOGGED = frozenset({"start_times", "input_lens", "output_lens", "ttfts", "latencies"})
"""Its fields with a value for each request."""

LLAMA_BENCH = frozenset({"model_filename", "n_prompt", "n_gen", "avg_ts"})
"""Fields of a test of llama-bench."""

LATENCIES = {
    f"{kind}_{short}_ms": f"{long}_{kind}_ms"
    for kind in ("ttft", "tpot") for short, long in (("mean", "mean"), ("p50", "median"), ("p99", "p99"))
}  # fmt: skip
"""Column -> field of a load generator."""


def is_tool_output(fields: Collection[str]) -> bool:
    """Whether a record with these fields is one of a tool that is known here."""
    return set(fields) >= LLAMA_BENCH or set(fields) >= SERVED


def tool_rows(records: Sequence[JsonMapping]) -> list[JsonObject]:
    """Records of a tool as rows of a table: a log of requests where there is one record of an open load with the times
    of each, else a row for each record.
    """
    if len(records) == 1 and _is_log(records[0]):
        return _requests(records[0])
    return [_bench_row(one) if one.keys() >= LLAMA_BENCH else _served_row(one) for one in records]


# ---------------------------------------------------------------------------------------------- load generators
def _served_row(record: JsonMapping) -> JsonObject:
    """A run under load. The server of SGLang says how it was started; metadata of vLLM (`--metadata tp=4 device=h100`)
    are fields beside the others.
    """
    server = record.get("server_info")
    started = _started(server) if isinstance(server, Mapping) else {}
    stated = {name: record[name] for name in METADATA if record.get(name) not in (None, "")}
    load = _load(record)
    found = {column: record.get(field) for column, field in LATENCIES.items()}
    return {
        "model": record.get("model_id"), "engine": _engine(record.get("backend")), "device": None, **started, **load,
        **stated, **found, "output_tok_s": record["output_throughput"],
    }  # fmt: skip


METADATA = (
    *("model", "device", "n_devices", "tp", "pp", "ep", "dp_attention", "weights", "kv_dtype", "engine"),
    *("engine_version", "flags", "speculative"),
)
"""Columns that whoever ran a benchmark may have stated."""


def _engine(backend: object) -> str | None:
    """The engine of a client's backend; None of those that speak to any server (`openai-chat`)."""
    try:
        return engine_and_version(str(backend))[0]
    except ArchsimError:
        return None


def _load(record: JsonMapping) -> JsonObject:
    """How requests arrived, and how long they are: as drawn where that is said, else their means."""
    rate, most, count = record["request_rate"], record.get("max_concurrency"), record["completed"]
    row: JsonObject = {"n_requests": count, "concurrency": most, "request_rate": rate, **_lengths(record)}
    limit = f", at most {most} in flight" if most else ""
    if record.get("ramp_up_strategy") or rate == "trace":
        return row | {"arrival": "as in a trace", "not_modelled": "its requests arrive at a rate that is not constant"}
    if rate in ("inf", float("inf")):
        return row | {"arrival": "closed loop" if most else "all at once"}
    shape = number(record.get("burstiness"))
    if shape == 1 or shape is None:
        return row | {"arrival": f"open loop (Poisson){limit}"}
    if not 1e-4 <= shape <= 1e4:
        return row | {"arrival": "open loop", "not_modelled": "its burstiness is not between 0.0001 and 10,000"}
    return row | {"arrival": f"open loop (gamma, CV {shape**-0.5:.6f}){limit}"}


def _lengths(record: JsonMapping) -> JsonObject:
    """Tokens of prompts and answers."""
    count = number(record["completed"]) or 1.0
    means = {"isl": round((number(record["total_input_tokens"]) or 0.0) / count),
             "osl": round((number(record["total_output_tokens"]) or 0.0) / count)}  # fmt: skip
    data, least = str(record.get("dataset_name") or ""), number(record.get("random_range_ratio"))
    if data == "sharegpt":
        return {**means, "lengths": "sharegpt"}
    nominal = {"isl": record.get("random_input_len"), "osl": record.get("random_output_len")}
    if data.startswith("random") and least is not None and least < 1 and all(nominal.values()):
        return {**nominal, "lengths": f"uniform {max(least, 1e-3):g}..1 of nominal"}
    return means


STARTED = {"model": "model_path", "tp": "tp_size", "pp": "pp_size", "ep": "ep_size", "engine_version": "version"}
"""Column -> field of SGLang's `server_info`."""

FLAGS = {
    "--mem-fraction-static": "mem_fraction_static", "--chunked-prefill-size": "chunked_prefill_size",
    "--max-running-requests": "max_running_requests", "--speculative-num-steps": "speculative_num_steps",
    "--speculative-eagle-topk": "speculative_eagle_topk",
    "--speculative-num-draft-tokens": "speculative_num_draft_tokens",
}  # fmt: skip
"""Flags of a server of SGLang -> fields of its `server_info`."""


def _started(server: JsonMapping) -> JsonObject:
    """How a server of SGLang was started."""
    row: JsonObject = {column: server[field] for column, field in STARTED.items() if server.get(field) is not None}
    row["flags"] = " ".join(f"{flag} {server[field]}" for flag, field in FLAGS.items() if server.get(field))
    for column, field in (("weights", "quantization"), ("kv_dtype", "kv_cache_dtype")):
        if server.get(field) not in (None, "auto") and is_known("formats", str(server[field])):
            row[column] = server[field]
    replicas = number(server.get("dp_size")) or 1.0
    if server.get("enable_dp_attention"):
        row["dp_attention"] = "yes"
    elif replicas > 1:
        row["n_devices"] = replicas * (number(server.get("tp_size")) or 1.0) * (number(server.get("pp_size")) or 1.0)
    if way := str(server.get("speculative_algorithm") or "").lower():
        row["speculative"] = "yes" if way in BY_LAYER else way
    return row


BY_LAYER = ("eagle", "eagle3", "nextn")
"""`speculative_algorithm` of servers whose drafts are made by a layer on top of the model."""


def _is_log(record: JsonMapping) -> bool:
    """Whether a record has the times of requests that came by themselves: those of a closed loop follow the answers."""
    lists = [record.get(name) for name in LOGGED]
    return all(isinstance(one, list) and one for one in lists) and not record.get("max_concurrency")


def _requests(record: JsonMapping) -> list[JsonObject]:
    """Its requests, each with what is said of the server; those that failed have no answer and are left out."""
    served = _served_row(record)
    said = {column: served[column] for column in ("model", "device", "engine", "tp") if served.get(column)}
    fields = ("start_times", "input_lens", "output_lens", "ttfts", "latencies")
    columns = [[number(one) for one in record[name]] for name in fields]
    known = [one for one in zip(*columns, strict=False) if None not in one and one[2]]
    began = min((start for start, *_ in known), default=0.0)
    return [
        {"t_s": start - began, "input": prompt, "output": answer, "ttft_ms": 1e3 * first, "e2e_ms": 1e3 * whole, **said}
        for start, prompt, answer, first, whole in known
    ]


# ---------------------------------------------------------------------------------------------- llama-bench
FILE_TYPE = re.compile(
    r"\b(MXFP4|BF16|F16|F32|(?:I?Q[1-8]|TQ[12])_(?:K|NL|XXS|XS|S|M|0|1))(?: (mix)| - (Small|Medium|Large))?", re.I
)
"""A file type in llama.cpp's words: `Q4_K - Medium`, `IQ3_S mix - 3.66 bpw`, `MXFP4 MoE`."""

PARTS = re.compile(r"-[0-9]{5}-of-[0-9]{5}$")
"""Of a file that is split."""

ALL_LAYERS = 99
"""`-ngl` that people write for all layers."""

MICRO_BATCH = 512
"""Tokens of a prompt that run at a time, unless `-ub` says otherwise."""


def _bench_row(record: JsonMapping) -> JsonObject:
    """One test of llama-bench: a prompt, an answer, or both."""
    prompt, answer, depth = (int(number(record.get(name)) or 0) for name in ("n_prompt", "n_gen", "n_depth"))
    name = PARTS.sub("", PurePath(str(record["model_filename"]).replace("\\", "/")).stem)
    metric, definition = _asked(prompt, answer)
    devices = [one.strip() for one in str(record.get("gpu_info") or "").split(",") if one.strip()]
    host = not devices or number(record.get("n_gpu_layers")) == 0
    build = record.get("build_number")
    return {
        "model": name, "weights_dtype": _file_type(str(record.get("model_type") or "")),
        "kv_dtype": _cache(record.get("type_k")), "device": record.get("cpu_info") if host else devices[0],
        "n_devices": 1 if host or record.get("split_mode") == "none" else len(devices), "engine": "llama.cpp",
        "engine_version": f"b{build}" if build else None, "metric": metric, "definition": definition, "batch": 1,
        "isl": prompt or depth, "osl": answer or None, "value": record["avg_ts"],
        "not_modelled": _not_modelled(record, prompt, depth, name, () if host else devices),
    }  # fmt: skip


def _asked(prompt: int, answer: int) -> tuple[str, str]:
    """Metric and definition of a test."""
    if prompt and answer:
        return "throughput_tok_s", "all_over_wall"
    return ("prefill_tok_s", "prefill_rate") if prompt else ("decode_tok_s", "decode_rate_per_seq")


def _file_type(words: str) -> str | None:
    """The weight format of a file type; None where it is not known."""
    found = FILE_TYPE.search(words)
    if found is None:
        return None
    kind, mix, size = (part.lower() if part else "" for part in found.groups())
    if kind in ("bf16", "f16", "f32", "mxfp4"):
        return {"f16": "fp16", "f32": "fp32", "mxfp4": "mxfp4_moe"}.get(kind, kind)
    kind = kind.removesuffix("_s") + "_m" if mix else kind
    sized = f"gguf_{kind}_{size[:1]}"
    return sized if size and is_known("formats", sized) else f"gguf_{kind}"


def _cache(kind: object) -> str | None:
    """The cache format of `-ctk`."""
    return {"f16": "fp16", "f32": "fp32", "None": None}.get(str(kind), str(kind))


def _not_modelled(record: JsonMapping, prompt: int, depth: int, name: str, devices: Sequence[str]) -> str | None:
    """Why a test has no prediction; None where it has one."""
    step = int(min(number(record.get(field)) or MICRO_BATCH for field in ("n_batch", "n_ubatch")))
    layers = number(record.get("n_gpu_layers"))
    reasons = {
        "a prompt behind cached tokens (-d)": bool(prompt and depth),
        f"prompts in steps of {step:,} tokens (-ub)": bool(prompt) and min(prompt, step) != min(prompt, MICRO_BATCH),
        "caches of another format for keys than for values": record.get("type_k") != record.get("type_v"),
        "experts in host memory (-ncmoe)": bool(number(record.get("n_cpu_moe"))),
        "the cache in host memory (-nkvo)": str(record.get("no_kv_offload")).lower() in ("1", "true"),
        "tensors in other memories (-ot)": str(record.get("tensor_buft_overrides") or "none") != "none",
        "devices that share each layer (-sm)": str(record.get("split_mode") or "layer") not in ("layer", "none"),
        "devices of several kinds": record.get("split_mode") != "none" and len(set(devices)) > 1,
        "some layers in host memory (-ngl)": layers is not None and 0 < layers < _layers(name),
    }  # fmt: skip
    return next((f"{reason}: not modelled here" for reason, there in reasons.items() if there), None)


def _layers(name: str) -> int:
    """Layers that a device holds of a model when it holds all."""
    try:
        return model_of(name)[0].n_layers
    except ArchsimError:
        return ALL_LAYERS
