"""One forward pass of a PyTorch module on the `meta` device: module calls, and the ATen operations in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

import torch
from torch import nn
from torch.fx.experimental import _config as meta
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from archsim.base.errors import UsageError
from archsim.tracing.untyped import Untyped

MOST_RECORDS = 400_000
"""Operations of one forward pass at most: more come of loops over tokens at lengths that need no such loop."""


@dataclass(slots=True, eq=False)
class Value:
    """A tensor of the capture. param: its name where it is a parameter. made: the record that wrote it. base: what it
    is a view, a part or a copy of. live: whether it depends on parameters or on numbers that went in, which masks,
    positions and tables do not. turns: a table of sines or cosines. raw: whether no parameter reaches it. share: of its
    numbers that are taken not to be zero, less than 1 in what says which of several classes each row is of. classes:
    how many classes its numbers choose between, 0 where they are no choice.
    """

    shape: tuple[int, ...]
    dtype: str
    param: str = ""
    made: Record | None = None
    base: Value | None = None
    live: bool = True
    turns: bool = False
    raw: bool = False
    share: Fraction = Fraction(1)
    classes: int = 0

    @property
    def root(self) -> Value:
        """The tensor whose numbers these are."""
        found = self
        while found.base is not None:
            found = found.base
        return found


@dataclass(slots=True, eq=False)
class Record:
    """One operation: its name in ATen, the tensors it read and wrote, and the module call that it belongs to."""

    name: str
    reads: list[Value]
    writes: list[Value]
    call: Call
    attrs: dict[str, Untyped] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Call:
    """One call of a module: operations and calls inside it, in order. name: the module's qualified name."""

    name: str
    children: list[Record | Call] = field(default_factory=list)

    def records(self) -> Iterator[Record]:
        """All operations inside, in order of execution."""
        for child in self.children:
            if isinstance(child, Record):
                yield child
            else:
                yield from child.records()


@dataclass(slots=True, eq=False)
class Capture:
    """A forward pass: the outermost call, what went in, and what came out."""

    root: Call
    result: Untyped
    values: dict[int, Value]
    kept: list[Untyped]

    def value(self, tensor: torch.Tensor) -> Value | None:
        """What a tensor that came out is in the capture."""
        return self.values.get(id(tensor))


VIEWS = frozenset(
    {
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "transpose",
        "t",
        "permute",
        "expand",
        "expand_as",
        "unsqueeze",
        "squeeze",
        "slice",
        "select",
        "split",
        "split_with_sizes",
        "chunk",
        "unbind",
        "narrow",
        "clone",
        "contiguous",
        "alias",
        "detach",
        "_to_copy",
        "to",
        "copy",
        "lift_fresh",
        "repeat",
        "as_strided",
        "unfold",
        "view_as_real",
        "view_as_complex",
        "flip",
        "roll",
        "diagonal",
        "movedim",
        "flatten",
        "unflatten",
    }
)  # fmt: skip
"""Operations whose result holds numbers of their first operand: where they move any, an engine does it in the kernel
before or after.
"""

MOST_READS = 8
"""Operands of one operation that are kept: joining a part for every token reads alike ones."""


class TooManyOperations(Exception):
    """A forward pass of more operations than a capture holds."""


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down every operation that reaches the dispatcher."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.values: dict[int, Value] = {}
        self.kept: list[Untyped] = []  # tensors stay alive, so that no address is used twice
        self.root = Call("")
        self.open = [self.root]
        self.recording, self.count = True, 0
        self.numbers: dict[int, torch.Tensor] = {}
        self.buffers = {id(tensor) for tensor in module.buffers()}
        for name, tensor in module.named_parameters(remove_duplicate=True):
            self._remember(tensor, Value(tuple(tensor.shape), _dtype(tensor), param=name))

    def _remember(self, tensor: Untyped, value: Value) -> Value:
        self.values[id(tensor)] = value
        self.kept.append(tensor)
        return value

    def value(self, tensor: Untyped) -> Value:
        """The tensor as the capture knows it; one that it has not seen is an input, a buffer or a constant."""
        known = self.values.get(id(tensor))
        if known is None:
            live = tensor.is_floating_point() and id(tensor) not in self.buffers and tensor.dim() > 0
            known = self._remember(tensor, Value(tuple(tensor.shape), _dtype(tensor), live=live, raw=True))
        return known

    def add(self, name: str, reads: list[Untyped], writes: list[Untyped], attrs: dict[str, Untyped]) -> None:
        """One more operation. Views only say whose numbers they are, and what no parameter reaches is no work."""
        known = [self.value(tensor) for tensor in reads]
        source = next((value for value in known if 0 not in value.shape), None)
        if source is not None and (name in VIEWS or (name in ("cat", "stack") and _only_one(known))):
            for tensor in writes:
                value = Value(tuple(tensor.shape), _dtype(tensor), base=source, live=source.live, turns=source.turns,
                              raw=source.raw, share=source.share, classes=source.classes)  # fmt: skip
                self._remember(tensor, value)
            return
        live = any(value.live for value in known)
        turns = not live and (name in ("cos", "sin", "polar") or any(value.turns for value in known))
        record = Record(name, known[:MOST_READS], [], self.open[-1], attrs)
        raw = all(value.raw for value in known)
        for tensor in writes:
            share, classes = _share(name, known, tensor), _classes(name, known, tensor)
            value = Value(tuple(tensor.shape), _dtype(tensor), made=record if live else None, live=live, turns=turns,
                          raw=raw, share=share, classes=classes)  # fmt: skip
            record.writes.append(self._remember(tensor, value))
        if not live:
            return
        self.count += 1
        if self.count > MOST_RECORDS:
            raise TooManyOperations
        self.open[-1].children.append(record)

    def __torch_dispatch__(self, func: Untyped, types: Untyped, args: Untyped = (), kwargs: Untyped = None) -> Untyped:
        """Runs the operation and writes it down."""
        kwargs = kwargs or {}
        if func._overloadpacket.__name__ in ("index", "index_put", "index_put_"):
            args = (args[0], self._indices(args[1]), *args[2:])
        if func is torch.ops.aten.nonzero.default and args[0].is_meta:
            result = self._places(args[0])
        else:
            result = func(*_without_data(args), **_without_data(kwargs))
            self._follow(func, args, kwargs, result)
        if self.recording:
            reads = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
            writes = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
            self.add(func._overloadpacket.__name__, reads, writes, _attributes(func, args))
        return result

    def _indices(self, indices: Untyped) -> Untyped:
        """Indices with the places of masks that are not zero in place of the masks."""
        found: list[Untyped] = []
        for index in indices:
            masks = index is not None and index.is_meta and index.dtype == torch.bool
            found += self._places(index).unbind(1) if masks else [index]
        return found

    def _places(self, tensor: torch.Tensor) -> torch.Tensor:
        """Where numbers are not zero: in each place of a list, else in as many places as its share."""
        n = int(tensor.numel() * self.value(tensor).share)
        found = torch.empty(n, tensor.dim(), dtype=torch.long, device="meta")
        if tensor.dim() == 1 and n == tensor.numel():
            self.numbers[id(found)] = torch.arange(n, device="cpu")[:, None]
        return found

    def _follow(self, func: Untyped, args: Untyped, kwargs: Untyped, result: Untyped) -> None:
        """Numbers that are known of what went in give those of what comes out."""
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if not self.numbers or not tensors or any(id(t) not in self.numbers for t in tensors):
            return
        known = tree_map(lambda t: self.numbers[id(t)] if isinstance(t, torch.Tensor) else t, (args, kwargs))
        outside = tree_leaves(func(*known[0], **known[1]))
        self.numbers |= {id(t): held for t, held in zip(tree_leaves(result), outside, strict=True)}


def _without_data(given: Untyped) -> Untyped:
    """Arguments of an operation with all tensors on `meta` where one is: tables that a module made on the processor
    (`torch.Tensor(numbers)`, `torch.from_numpy`) stand beside what it computes.
    """
    tensors = [t for t in tree_leaves(given) if isinstance(t, torch.Tensor)]
    if not any(t.is_meta for t in tensors) or all(t.is_meta or t.dim() == 0 for t in tensors):
        return given
    return tree_map(lambda t: t.to("meta") if isinstance(t, torch.Tensor) and t.dim() else t, given)


ANSWERS: dict[Untyped, bool | int] = {
    torch.Tensor.__bool__: False, torch.Tensor.item: 0, torch.Tensor.__contains__: False,
    torch.Tensor.__int__: 0, torch.Tensor.__index__: 0,
}  # fmt: skip
"""What is said of tokens, masks and positions when a module asks for their values: that none is masked, and none
special.
"""


class Functions(TorchFunctionMode):
    """Writes attention down as one operation, with what its caller says of the mask."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Untyped, types: Untyped, args: Untyped = (), kwargs: Untyped = None) -> Untyped:
        """Runs the function."""
        kwargs, recorder = kwargs or {}, self.recorder
        if (func in ANSWERS or func is torch.Tensor.__format__) and id(args[0]) in recorder.numbers:
            return func(recorder.numbers[id(args[0])], *args[1:])
        if func in ANSWERS and (not (asked := recorder.value(args[0])).live or asked.raw):
            return ANSWERS[func]
        if func is torch.Tensor.__getitem__:
            return func(args[0], self._known_place(args[1]))
        if func is functional.one_hot:
            result = func(*args, **kwargs)
            recorder.value(result).share = Fraction(1, result.shape[-1])
            return result
        if func is not functional.scaled_dot_product_attention or not recorder.recording:
            return func(*args, **kwargs)
        recorder.recording = False
        try:
            result = func(*args, **kwargs)
        finally:
            recorder.recording = True
        named = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | kwargs
        masked = named.get("attn_mask") is not None
        attrs = {"causal": None if masked else bool(named.get("is_causal")), "window": 0}
        recorder.add("attention", [named[name] for name in ("query", "key", "value")], [result], attrs)
        return result

    def _known_place(self, index: Untyped) -> Untyped:
        """An index whose single numbers are whole numbers where they are known: the expert whose turn it is."""
        if isinstance(index, tuple):
            return tuple(self._known_place(part) for part in index)
        known = self.recorder.numbers.get(id(index)) if isinstance(index, torch.Tensor) else None
        return index if known is None or known.dim() or known.dtype == torch.bool else int(known)


def capture(
    module: nn.Module, run: Callable[[], Untyped], hints: Callable[[Recorder], Untyped] | None = None
) -> Capture:
    """What one run of a module does. hints: a context in which attention says more about itself."""
    recorder = Recorder(module)
    names = {id(part): name for name, part in module.named_modules(remove_duplicate=False)}

    def enter(part: nn.Module, _: Untyped) -> None:
        call = Call(names.get(id(part), type(part).__name__))
        recorder.open[-1].children.append(call)
        recorder.open.append(call)

    def leave(part: nn.Module, _args: Untyped, _result: Untyped) -> None:
        recorder.open.pop()

    handles = register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=False)
    try:
        with (
            torch.no_grad(),
            _all_kept(),
            _opened(),
            _plain_autocast(),
            _unchecked(),
            (hints or _nothing)(recorder),
            Functions(recorder),
            recorder,
        ):
            result = run()
    finally:
        for handle in handles:
            handle.remove()
    return Capture(recorder.root, result, recorder.values, recorder.kept)


@contextmanager
def _all_kept() -> Iterator[None]:
    """Masks without data keep what they are laid on."""
    with meta.patch(meta_nonzero_assume_all_nonzero=True):  # type: ignore[attr-defined]
        yield


@contextmanager
def _opened() -> Iterator[None]:
    """`nn.TransformerEncoderLayer` and `nn.MultiheadAttention` run as their products, not as one operation of ATen."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def _unchecked() -> Iterator[None]:
    """Distributions do not look whether their parameters, which have no data, are in range."""
    kind = torch.distributions.Distribution
    before = kind._validate_args
    kind.set_default_validate_args(False)
    try:
        yield
    finally:
        kind.set_default_validate_args(before)


@contextmanager
def _plain_autocast() -> Iterator[None]:
    """`torch.autocast("meta")`, which torch does not know, changes nothing."""
    known = torch.autocast.__init__

    def init(self: Untyped, device_type: str, *args: Untyped, **kwargs: Untyped) -> None:
        known(self, "cpu" if device_type == "meta" else device_type, *args, **kwargs)

    torch.autocast.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__init__ = known  # type: ignore[method-assign]


@contextmanager
def _nothing(_: Recorder) -> Iterator[None]:
    yield


def _only_one(values: list[Value]) -> bool:
    return sum(0 not in value.shape for value in values) == 1


def _share(name: str, known: list[Value], result: Untyped) -> Fraction:
    """Of the numbers of a result those that are not zero: rows that a choice gives to one class, where each class is
    chosen as often as any other.
    """
    if name == "eq":
        return min((Fraction(1, value.classes) for value in known if value.classes), default=Fraction(1))
    if name in ("any", "amax", "max", "sum") and known[0].share < 1 and result.numel():
        joined = prod(known[0].shape) // int(result.numel())
        return min(known[0].share * joined, Fraction(1))
    if name in ("mul", "mul_", "bitwise_and", "logical_and"):  # what is zero in one is zero in the product
        return min((value.share for value in known), default=Fraction(1))
    return known[0].share if name == "index" and known else Fraction(1)


def _classes(name: str, known: list[Value], result: Untyped) -> int:
    """Between how many classes the numbers of a result choose."""
    chosen = name in CHOOSES and not result.is_floating_point() and known[0].shape
    return known[0].shape[-1] if chosen else 0


CHOOSES = frozenset({"topk", "argmax", "sort", "argsort", "multinomial"})
"""Operations whose whole numbers are places along the last axis of what they read."""


def _dtype(tensor: Untyped) -> str:
    return str(tensor.dtype).removeprefix("torch.")


ARGUMENTS = {"convolution": {"groups": 8}, "mean": {"dim": 1}, "sum": {"dim": 1}}
"""Plain arguments that what an operation means depends on, by position."""


def _attributes(func: Untyped, args: Untyped) -> dict[str, Untyped]:
    wanted = ARGUMENTS.get(func._overloadpacket.__name__, {})
    return {name: args[at] for name, at in wanted.items() if at < len(args)}


class Uncaptured(UsageError):
    """A forward pass that does not finish without data."""


def refuse_data(error: Exception, name: str) -> Uncaptured:
    """Why a forward pass without data did not finish, in one line."""
    text = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
    hints = (
        "a forward pass is captured without data: branches and shapes must not depend on the values of tensors",
        "a module that takes anything but tokens needs a method `archsim_inputs(batch, length)` that returns its "
        "arguments: docs/your-module.md",
    )
    return Uncaptured(f"the forward pass of {name} cannot be captured: {text}", hints=hints)
