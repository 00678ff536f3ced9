"""Small files of measurements that the tests of `archsim validate` read."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLLECTIVES = ("nccl_all_reduce", "engine_all_reduce", "nccl_all_gather", "nccl_reduce_scatter", "nccl_alltoall",
               "nccl_send_recv")  # fmt: skip

PHASES = (("prefill", 1024), ("decode", 1))

EXCHANGED = ("moe_dispatch", "moe_combine")
SPARSE = {"batch": 2, "seq_q": 4, "seq_kv": 40_000}

MODULES: Mapping[str, Mapping[str, int]] = {
    "mla": {"head_dim": 576, "hidden": 7168},
    "dsa": {"head_dim": 576, "hidden": 7168, "topk": 2048},
    "csa": {"head_dim": 512, "hidden": 7168, "topk": 1024},
    "hca": {"head_dim": 512, "hidden": 7168},
    "msa": {"head_dim": 128, "hidden": 6144, "topk": 2048},
}
"""Widths of the blocks that tables time as a whole."""

EXTENTS: Mapping[str, Mapping[str, int]] = {
    "gemm": {"m": 64, "n": 4096, "k": 4096},
    "attn_prefill": {
        "batch": 2,
        "seq_q": 1024,
        "seq_kv": 1024,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "window": 0,
    },
    "attn_decode": {"batch": 8, "seq_q": 1, "seq_kv": 2048, "heads": 32, "kv_heads": 8, "head_dim": 128, "window": 0},
    "mla_prefill": {"batch": 1, "seq_q": 1024, "seq_kv": 1024, "heads": 16, "kv_heads": 1, "head_dim": 576, "tp": 8},
    "mla_decode": {"batch": 8, "seq_q": 1, "seq_kv": 4096, "heads": 16, "kv_heads": 1, "head_dim": 576, "tp": 8},
    "moe": {"m": 128, "experts": 64, "topk": 8, "hidden": 2048, "inter": 1024, "tp": 1, "ep": 1},
    **{op: {"n_gpus": 4, "bytes": 1 << 24} for op in COLLECTIVES},
    **{op: {"m": 512, "n": 8192} for op in ("norm", "rope", "act", "add", "quantize", "quantize_scale")},
    "attn_encoder": {"batch": 2, "seq_q": 1024, "seq_kv": 1024, "heads": 16, "kv_heads": 16, "head_dim": 72},
    "mla_bmm": {"m": 64, "n": 512, "k": 128, "heads": 16},
    **{f"conv1d_{phase}": {"m": 2 * new, "n": 8192, "k": 4, "batch": 2, "seq_q": new} for phase, new in PHASES},
    **{
        f"{kind}_{phase}": {"batch": 2, "seq_q": new, "heads": 32, "kv_heads": 32, "head_dim": 128}
        for kind in ("gdn", "kda")
        for phase, new in PHASES
    },
    **{op: {"m": 512, "k": 4, "hidden": 4096} for op in ("mhc_pre", "mhc_post")},
    "mlp": {"m": 64, "hidden": 7168, "inter": 2048},
    **{op: {"m": 64, "experts": 256, "topk": 8, "hidden": 7168, "ep": 8, "n_gpus": 8} for op in EXCHANGED},
    "moe_wideep": {"m": 512, "experts": 256, "topk": 8, "hidden": 7168, "inter": 2048, "tp": 1, "ep": 16},
    "moe_mega": {"m": 64, "experts": 256, "topk": 8, "hidden": 7168, "inter": 2048, "tp": 1, "ep": 8, "n_gpus": 8},
    **{f"{kind}_logits": {**SPARSE, "heads": 64, "head_dim": 128} for kind in ("dsa", "csa")},
    **{f"{kind}_topk": {**SPARSE, "topk": 512} for kind in ("dsa", "csa")},
    "dsa_attn": {**SPARSE, "heads": 64, "head_dim": 576, "topk": 2048},
    "hca_attn": {**SPARSE, "heads": 64, "head_dim": 512},
    **{
        f"{kind}_module_{phase}": {"batch": 2, "seq_q": new, "seq_kv": 5000, "heads": 32, **widths}
        for kind, widths in MODULES.items()
        for phase, new in PHASES
    },
}
"""A plausible call of every class of kernels."""

COLUMNS = ("op", "device", "dtype", "kv_dtype", "m", "n", "k", "batch", "seq_q", "seq_kv", "heads", "kv_heads",
           "head_dim", "window", "experts", "topk", "hidden", "inter", "tp", "ep", "n_gpus", "bytes", "time_us",
           "engine", "kernel", "source", "split")  # fmt: skip


def kernel(op: str = "gemm", time_us: float = 100.0, **changes: Any) -> dict[str, Any]:
    """A row of a kernel table."""
    shared = {"op": op, "device": "H100-SXM", "dtype": "bf16", "engine": "vllm 0.24.0", "time_us": time_us}
    return {**shared, **EXTENTS.get(op, {}), **changes}


def run(metric: str = "decode_tok_s", value: float = 100.0, **changes: Any) -> dict[str, Any]:
    """A row of a run list."""
    shared = {
        "model": "llama3-8b", "device": "A100-SXM-80GB", "n_devices": 1, "tp": 1, "pp": 1, "ep": 1,
        "weights_dtype": "bf16", "engine": "vLLM", "engine_version": "0.6.3", "metric": metric, "isl": 512,
        "osl": 128, "batch": 4, "value": value,
    }  # fmt: skip
    return {**shared, **changes}


def point(tpot: float = 10.0, ttft: float = 80.0, **changes: Any) -> dict[str, Any]:
    """A row of a serving table."""
    shared = {
        "model_path": "meta-llama/Llama-3.1-8B-Instruct", "system": "h100_sxm", "backend": "vllm",
        "backend_version": "0.12.0", "precision": "", "isl": 1024, "osl": 256, "batch_size": 4, "concurrency": 4,
        "tp_size": 1, "pp_size": 1, "attention_dp_size": "", "moe_tp_size": 1, "moe_ep_size": 1,
        "silicon_ttft_ms": ttft, "silicon_tpot_ms": tpot, "parallel_suspect": 0,
    }  # fmt: skip
    return {**shared, **changes}


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows under a header of all their keys."""
    stream = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(stream, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def write(path: Path, rows: Sequence[Mapping[str, Any]], form: str = "csv") -> Path:
    """A file of rows as `csv`, `gz` (of CSV), `json` (a list) or `yaml` (`rows:`)."""
    if form == "gz":
        path.write_bytes(gzip.compress(as_csv(rows).encode()))
    elif form == "json":
        path.write_text(json.dumps(list(rows)), "utf-8")
    elif form == "yaml":
        path.write_text(json.dumps({"rows": list(rows)}).replace("{", "\n{", 1).lstrip(), "utf-8")
    else:
        path.write_text(as_csv(rows), "utf-8")
    return path
