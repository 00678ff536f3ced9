"""Error figures of a processor's run: held-out kernels, composed models, orders of variants, savings of fusions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean, median

from archsim.base.json_types import JsonMapping, JsonObject
from archsim.measure.point import DIMS
from archsim.measure.table import HELD
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.kernel_timer import Timer

APART = 0.15
"""Variants whose measured times differ by less are not told apart."""

FUSIONS = (
    ("residual and norm", ("add_rmsnorm",), "compiled add_rmsnorm"), ("norm", ("rmsnorm",), "compiled rmsnorm"),
    ("gate and activation", ("swiglu",), "compiled swiglu"), ("rotation", ("rope",), "compiled rope"),
    ("gate and activation, GELU", ("geglu_tanh",), "compiled geglu_tanh"),
)  # fmt: skip
"""What is fused, the functions without it, and the kernel with it."""

NARROWED = (("bf16 product for fp32", "fp32", "bf16"), ("int8 product for fp32", "fp32", "int8"),
            ("4-bit product for bf16", "bf16", "int4_wo"))  # fmt: skip


def call_of(row: Mapping[str, str]) -> KernelCall:
    """A row of a kernel table as a call."""
    dims = {name: float(row[name]) for name in DIMS if row.get(name)}
    return KernelCall(row["op"], row["dtype"], row["kv_dtype"], row["kernel"], dims)


def kernel_rows(rows: Iterable[Mapping[str, str]], timer: Timer, held: bool = True) -> list[JsonObject]:
    """Rows of a processor's kernels with their predictions. held: only those that no fit has seen."""
    found: list[JsonObject] = []
    for row in rows:
        if row["op"] not in MODELS or (held and row["split"] != HELD):
            continue
        call = call_of(row)
        time = timer.time(call)
        measured = float(row["time_us"]) * 1e-6
        compute, memory, _ = MODELS[call.kernel_class].bound(call, timer.machine)
        found.append({
            "op": row["op"], "kernel": row["kernel"], "dtype": row["dtype"], "dims": dict(call.dims),
            "predicted_s": float(time.expected), "low_s": float(time.low), "high_s": float(time.high),
            "measured_s": measured, "roofline_s": max(float(compute), float(memory)),
            "spread_pct": float(row["spread_pct"]),
        })  # fmt: skip
    return found


def errors(rows: Sequence[JsonMapping]) -> JsonObject:
    """Of rows with a prediction and a measurement: figures as shares. bias: mean signed error, + where too slow."""
    both = [row for row in rows if row.get("measured_s")]
    if not both:
        return {"rows": 0}
    signed = [row["predicted_s"] / row["measured_s"] - 1 for row in both]
    size = sorted(map(abs, signed))
    naive = [abs(row["roofline_s"] / row["measured_s"] - 1) for row in both]
    inside = [row["low_s"] <= row["measured_s"] <= row["high_s"] for row in both]
    return {
        "rows": len(both), "median": median(size), "mean": fmean(size),
        "p90": size[min(int(0.9 * len(size)), len(size) - 1)],
        "bias": fmean(signed), "inside": fmean(inside), "roofline_median": median(naive), "roofline_mean": fmean(naive),
    }  # fmt: skip


def errors_by(rows: Sequence[JsonMapping], names: Sequence[str]) -> dict[str, JsonObject]:
    """The same for each value of some columns together."""
    groups: dict[str, list[JsonMapping]] = {}
    for row in rows:
        groups.setdefault(" ".join(str(row[name]) for name in names), []).append(row)
    return {name: errors(members) for name, members in groups.items()}


def orders(rows: Sequence[JsonMapping], alike: Callable[[JsonMapping], object]) -> JsonObject:
    """Of pairs of rows that do the same work in two ways and that measurements tell apart, how many predictions put in
    the right order. alike: what the rows of a pair share.
    """
    groups: dict[object, list[JsonMapping]] = {}
    for row in rows:
        if row.get("measured_s"):
            groups.setdefault(alike(row), []).append(row)
    right = count = 0
    for members in groups.values():
        for one, other in combinations(members, 2):
            ratio = one["measured_s"] / other["measured_s"]
            if max(ratio, 1 / ratio) > 1 + APART:
                count += 1
                right += (one["predicted_s"] > other["predicted_s"]) == (ratio > 1)
    return {"pairs": count, "right": right}


def fusions(rows: Sequence[JsonMapping]) -> list[JsonObject]:
    """Savings of each fusion and of narrower products, predicted and measured at the same extents: shares of the time
    without.
    """
    by_key: dict[tuple[object, ...], JsonMapping] = {}
    for row in rows:
        dims = row["dims"]
        by_key[row["kernel"], row["dtype"], *(dims.get(name) for name in ("m", "n", "k")), _octave(dims)] = row
    found = [*_fused(by_key), *_narrowed(by_key)]
    return [row for row in found if row["pairs"]]


def _octave(dims: JsonMapping) -> int:
    """Between which powers of two the bytes lie that are touched between two calls."""
    return int(dims.get("between") or 0).bit_length()


def _fused(by_key: Mapping[tuple[object, ...], JsonMapping]) -> Iterator[JsonObject]:
    for title, parts, whole in FUSIONS:
        pairs = []
        for (kernel, *at), row in by_key.items():
            apart = [by_key.get((part, *at)) for part in parts]
            if kernel == whole and all(apart):
                pairs.append(([part for part in apart if part], row))
        yield _saving(title, pairs)


def _narrowed(by_key: Mapping[tuple[object, ...], JsonMapping]) -> Iterator[JsonObject]:
    for title, wide, narrow in NARROWED:
        pairs = []
        for (kernel, dtype, *at), row in by_key.items():
            other = by_key.get((kernel, wide, *at))
            if row["op"] == "cpu_gemm" and dtype == narrow and other:
                pairs.append(([other], row))
        yield _saving(title, pairs)


def _saving(title: str, pairs: Sequence[tuple[Sequence[JsonMapping], JsonMapping]]) -> JsonObject:
    """The median saving, how often its sign is right where it is more than noise, and the median error of its size."""
    seen = [[1 - row[side] / sum(part[side] for part in parts) for side in ("predicted_s", "measured_s")]
            for parts, row in pairs]  # fmt: skip
    told = [(p, m) for p, m in seen if abs(m) > APART]
    return {
        "fusion": title, "pairs": len(seen), "predicted": median([p for p, _ in seen]) if seen else None,
        "measured": median([m for _, m in seen]) if seen else None, "told_apart": len(told),
        "sign_right": sum((p > 0) == (m > 0) for p, m in told),
        "size_error": median([abs(p / m - 1) for p, m in told]) if told else None,
    }  # fmt: skip
