"""Kernels in Triton's dialect, launched by `triton_kernels`. Imported only where Triton is.

Every kernel computes in float32 and rounds where torch's eager operations would store.
"""
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,misc"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def norm_kernel(
    x, y, weight, total, out, width, eps,
    ADD: tl.constexpr, OFFSET: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row a program: with ADD the sum of x and y first, stored as `total`."""
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    value = tl.load(x + row + columns, mask=inside, other=0.0)
    if ADD:
        other = tl.load(y + row + columns, mask=inside, other=0.0)
        value = (value.to(tl.float32) + other.to(tl.float32)).to(value.dtype)
        tl.store(total + row + columns, value, mask=inside)
    exact = value.to(tl.float32)
    factor = tl.rsqrt(tl.sum(exact * exact, axis=0) / width + eps)
    scale = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    if OFFSET:
        scale += 1.0
    tl.store(out + row + columns, (exact * factor * scale).to(value.dtype), mask=inside)


@triton.jit
def swiglu_kernel(gate, up, out, width, gate_stride, up_stride, BLOCK: tl.constexpr):
    """silu(gate) · up; rows of the inputs may lie apart."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    g = tl.load(gate + row * gate_stride + columns, mask=inside, other=0.0)
    u = tl.load(up + row * up_stride + columns, mask=inside, other=0.0).to(tl.float32)
    wide = g.to(tl.float32)
    active = (wide * tl.sigmoid(wide)).to(g.dtype).to(tl.float32)
    tl.store(out + row * width + columns, (active * u).to(g.dtype), mask=inside)


@triton.jit
def rope_kernel(
    x, cos, sin, out, heads, tokens, x_token, x_head, width, pairs,
    BLOCK: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """One head of one token a program: its first 2·pairs entries turned, the others copied."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    source = x + token * x_token + head * x_head
    target = out + (token * heads + head) * width
    i = tl.arange(0, BLOCK)
    inside = i < pairs
    place = (token % tokens) * pairs
    c = tl.load(cos + place + i, mask=inside, other=0.0)
    s = tl.load(sin + place + i, mask=inside, other=0.0)
    a = tl.load(source + i, mask=inside, other=0.0)
    b = tl.load(source + pairs + i, mask=inside, other=0.0)
    p, q = a.to(tl.float32), b.to(tl.float32)
    tl.store(target + i, (p * c - q * s).to(a.dtype), mask=inside)
    tl.store(target + pairs + i, (q * c + p * s).to(a.dtype), mask=inside)
    if REST > 0:
        j = 2 * pairs + tl.arange(0, REST)
        tl.store(target + j, tl.load(source + j, mask=j < width, other=0.0), mask=j < width)


@triton.jit
def store_kernel(
    qkv, cos, sin, q_out, keys, values, place, room, q_heads, kv_heads, stride, pairs,
    WIDTH: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """One head of one sequence a program: queries turned, keys turned into the cache, values into the cache."""
    sequence = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    source = qkv + sequence * stride + head * WIDTH
    cached = (sequence * room + place) * kv_heads
    if head < q_heads + kv_heads:
        target = q_out + (sequence * q_heads + head) * WIDTH
        if head >= q_heads:
            target = keys + (cached + head - q_heads) * WIDTH
        i = tl.arange(0, PAIRS)
        inside = i < pairs
        c = tl.load(cos + i, mask=inside, other=0.0)
        s = tl.load(sin + i, mask=inside, other=0.0)
        a = tl.load(source + i, mask=inside, other=0.0)
        b = tl.load(source + pairs + i, mask=inside, other=0.0)
        p, q = a.to(tl.float32), b.to(tl.float32)
        tl.store(target + i, (p * c - q * s).to(a.dtype), mask=inside)
        tl.store(target + pairs + i, (q * c + p * s).to(a.dtype), mask=inside)
    else:
        j = tl.arange(0, WIDTH)
        tl.store(values + (cached + head - q_heads - kv_heads) * WIDTH + j, tl.load(source + j))


@triton.jit
def gemv_kernel(
    x, w, norm, residual, out, inputs, outputs, eps,
    NORM: tl.constexpr, OFFSET: tl.constexpr, ADD: tl.constexpr, GATE: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """ROWS outputs a program. NORM: x is normed on the way. GATE: 1 where the gate's rows come before those of
    the other half, 2 where behind. ADD: plus a residual."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    known = rows < outputs
    start = rows.to(tl.int64)[:, None] * inputs
    apart = tl.cast(outputs, tl.int64) * inputs
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    other = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    squares = tl.zeros((COLUMNS,), dtype=tl.float32)
    for k in range(0, inputs, COLUMNS):
        columns = k + tl.arange(0, COLUMNS)
        if EVEN:
            mask = known[:, None]
            value = tl.load(x + columns).to(tl.float32)
        else:
            mask = known[:, None] & (columns < inputs)[None, :]
            value = tl.load(x + columns, mask=columns < inputs, other=0.0).to(tl.float32)
        if NORM:
            squares += value * value
            scale = tl.load(norm + columns, mask=columns < inputs, other=0.0).to(tl.float32)
            if OFFSET:
                scale += 1.0
            value *= scale
        place = start + columns[None, :]
        total += tl.load(w + place, mask=mask, other=0.0).to(tl.float32) * value[None, :]
        if GATE > 0:
            other += tl.load(w + apart + place, mask=mask, other=0.0).to(tl.float32) * value[None, :]
    y = tl.sum(total, axis=1)
    z = tl.sum(other, axis=1)
    if NORM:
        factor = tl.rsqrt(tl.sum(squares, axis=0) / inputs + eps)
        y *= factor
        z *= factor
    if GATE == 1:
        y = y * tl.sigmoid(y) * z
    if GATE == 2:
        y = z * tl.sigmoid(z) * y
    if ADD:
        y += tl.load(residual + rows, mask=known, other=0.0).to(tl.float32)
    tl.store(out + rows, y.to(out.dtype.element_ty), mask=known)
