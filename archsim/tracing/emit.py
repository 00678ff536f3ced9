"""From a folded capture to a template: products, attention, experts, convolutions, caches, and passes between them.

What is recognised is recognised by what operations read and write, never by the name of a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from archsim.graph.builder import ELEMENTWISE_RATE
from archsim.graph.step import CAUSAL, Mask
from archsim.tracing.capture import Record, Value
from archsim.tracing.fold import Item, Loop, all_records
from archsim.tracing.passes import Run
from archsim.tracing.products import lower_product, operands_of
from archsim.tracing.template import BlockTemplate, OpTemplate, Size, Sizes, TensorTemplate, UseTemplate
from archsim.tracing.writer import CONVOLUTIONS, LOOKUPS, PRODUCTS, GraphWriter, Kept, Node, Place

FIXED = (0, 0, 0)
"""Powers of what does not follow the step."""

ALONE = {"over": ()}
"""Attributes of a pass: no axis that it sums over can be cut."""


class Places(NamedTuple):
    """Axes of the places of queries and of keys, and of the pairs of them; and the kernel that attends to tokens."""

    queries: Sizes
    keys: Sizes
    pairs: Sizes
    kernel: str


class Emitter(GraphWriter):
    """Writes the items of one capture as ops."""

    def template(self) -> BlockTemplate:
        """The graph. Parameters that no operation reads belong to the model all the same."""
        self.index(self.aligned.items)
        self._find_masks()
        body = self._nodes(self.aligned.items)
        return BlockTemplate(name="", body=(*body, *self._idle()))

    def _find_masks(self) -> None:
        for record in all_records(self.aligned.items):
            if record.name == "attention":
                mask = self._mask(record)
                for value in record.reads[1:3]:
                    self.masks[id(self.root(value))] = mask

    def _mask(self, record: Record) -> Mask:
        causal = record.attrs.get("causal")
        causal = self.facts.causal if causal is None else bool(causal)
        return Mask(causal=causal, window=record.attrs.get("window", 0) if causal else 0)

    def _idle(self) -> list[OpTemplate]:
        found = []
        for name, shape in self.facts.params.items():
            if self._first(name) not in self.weights:
                axes = {f"x{i}": Size.of(n) for i, n in enumerate(shape or (1,))}
                tensor = TensorTemplate("unused:" + name.replace(".", "/"), axes, "weight", "other")
                nothing = {axis: Size.of(0) if i == 0 else n for i, (axis, n) in enumerate(axes.items())}
                reads = (UseTemplate(tensor, nothing),)
                found.append(OpTemplate(kind="view", name=tensor.name, reads=reads, writes=()))
        return found

    def _nodes(self, items: Sequence[Item]) -> list[Node]:
        found: list[Node] = []
        run: list[Record] = []
        for item in items:
            if isinstance(item, Record) and not self._stands_alone(item):
                if not any(id(value) in self.derived for value in item.writes):
                    run.append(item)
                continue
            found += self._passes(run)
            run = []
            found += self._loop(item) if isinstance(item, Loop) else self._alone(item)
        return found + self._passes(run)

    def _stands_alone(self, record: Record) -> bool:
        lookup = record.name in LOOKUPS and bool(self.param(record.reads[0]))
        return record.name in PRODUCTS or record.name in CONVOLUTIONS or record.name == "attention" or lookup

    def _loop(self, loop: Loop) -> list[Node]:
        times = self.sizes.split([self.aligned.times[id(loop)]])
        prefix = _common_prefix([r.call.name for r in all_records(loop.body)])
        if times.unit != "1" or times.lines:
            return [self._scan(loop, prefix, times.number), *self._kept()]
        if not any(True for _ in all_records(loop.body)):
            return []
        number = prefix.rpartition(".")[2]
        last = f"{prefix}-{int(number) + loop.times - 1}" if number.isdigit() else f"{prefix}.x{loop.times}"
        name = self.unique(last.lstrip("."))
        self.places.append(Place(name, prefix, _varying(loop)))
        body = self._nodes(loop.body)
        self.places.pop()
        carry = tuple(pair for other in loop.rest[:1] for pair in self._carried(loop.body, other))
        return [BlockTemplate(name=name, body=tuple(body), times=Size.of(loop.times), carry=carry)]

    def _scan(self, loop: Loop, prefix: str, tokens: Fraction) -> Node:
        """A loop over tokens as one kernel that works on all of them."""
        before, self.sizes.tokens = self.sizes.tokens, tokens
        name = self.unique((prefix or "tokens") + ".scan")
        body = [node for node in self._nodes(loop.body) if isinstance(node, OpTemplate)]
        self.sizes.tokens = before
        return BlockTemplate(name=name, body=tuple(body), kernel="scan")

    def _carried(self, body: Sequence[Item], other: Sequence[Item]) -> list[tuple[TensorTemplate, TensorTemplate]]:
        """Pairs of a tensor that the first repetition reads and the one that the second reads in its place."""
        found: dict[str, tuple[TensorTemplate, TensorTemplate]] = {}
        for a, b in zip(all_records(body), all_records(other), strict=True):
            for x, y in zip(a.reads, b.reads, strict=False):
                before, after = self.tensors.get(id(self.root(x))), self.tensors.get(id(self.root(y)))
                if before is not None and after is not None and before is not after and before.kind == "act":
                    found.setdefault(before.name, (before, after))
        return list(found.values())

    def _passes(self, records: Sequence[Record]) -> list[Node]:
        found: list[Node] = []
        for each in Run(records, self.readers).passes() if records else ():
            inside = set(map(id, each.records))
            reads = {
                id(self.root(v)): v
                for r in each.records
                for v in r.reads
                if v.live and id(self.root(v).made) not in inside
            }
            made = [v for r in each.records for v in r.writes]
            leaves = [v for v in made if any(id(r) not in inside for r in self.readers(v))] or made[-1:]
            name = self.op_name(each.records[-1])
            uses = [self._pass_read(v, each.fn) for v in reads.values()]
            fn = "combine" if each.records[-1].name == "sum" else each.fn
            writes = [self.make(v, self.unique(name + "()")) for v in leaves]
            found.append(self.op("map", name, uses, writes, fn=fn, rate=ELEMENTWISE_RATE[fn], attrs=ALONE))
            found += [op for v in made for op in self._append(v)]
        return found

    def _pass_read(self, value: Value, fn: str) -> UseTemplate:
        param = self.param(value)
        if not param:
            return self.act(value)
        found = self.weight(param, "norm" if fn.endswith("norm") else "scalar")
        if found.role != "expert_bias":
            return found.part()
        total, rows = self.facts.params[param][0], self.sizes.split(self.aligned.shape(value))
        chosen = Size(((Fraction(1), "hit"),), (total, min(max(rows.number.numerator // found.width, 1), total)))
        return UseTemplate(found, {**found.axes, "E": chosen})

    def _alone(self, record: Record) -> list[Node]:
        if record.name == "attention":
            found: list[Node] = [self._attention(record)]
        elif record.name in LOOKUPS:
            found = self._lookup(record)
        else:
            found = self._product(record)
        return found + [op for value in record.writes for op in self._append(value)]

    def _append(self, value: Value) -> list[Node]:
        """What is kept of a value for the next step; of one that a loop over tokens makes, behind the loop."""
        if value.made is None or id(value) not in self.facts.caches:
            return []
        if self.sizes.tokens is not None:
            self.pending.append(value)
            return []
        return [self._state(value, kept) for kept in self.facts.caches[id(value)]]

    def _kept(self) -> list[Node]:
        """What loops over tokens have left to keep."""
        waiting = [value for value in self.pending if not self.sizes.tokens]
        self.pending = [] if waiting else self.pending
        return [self._state(value, kept) for value in waiting for kept in self.facts.caches[id(value)]]

    def _state(self, value: Value, kept: Kept) -> Node:
        source, name, root = self.act(value), self.unique("cache"), id(self.root(value))
        mask = self.masks.get(root, CAUSAL)
        if kept.grows:
            axes = {"C": Size.of(1, "C="), "H": Size.of(kept.width)}
            touched = {**axes, "C": Size.of(1, "C+")}
        else:
            axes = touched = {"S": Size.of(1, "S"), "H": Size.of(kept.width)}
        state = TensorTemplate(name, axes, "state", "kv" if kept.grows else "recurrent")
        self.states.setdefault(root, []).append(state)
        return self.op("append", name + "+", [source], [UseTemplate(state, touched)], mask=mask)

    def _lookup(self, record: Record) -> list[Node]:
        """Rows of a table."""
        param, out = self.param(record.reads[0]), record.writes[0]
        shape = self.facts.params[param]
        if len(shape) != 2:  # weights of chosen experts: their product reads them
            return []
        if record.reads[1].live and not record.reads[1].raw:  # biases of chosen experts: what adds them reads them
            self.weight(param, "expert_bias", {"E": Size.of(shape[0]), "F": Size.of(shape[1])})
            self.derived[id(out)] = param
            return []
        split = self.sizes.split(self.aligned.shape(out))
        rows = split.axes(row="R")
        role = (
            "embedding" if split.unit == "T" and not self.weights else "position" if shape[0] > 8 else "embedding_other"
        )
        axes = {"V": Size.of(shape[0]), "D": Size.of(shape[1])}
        table = self.weight(param, role, axes)
        taken = {**table.axes, next(iter(table.axes)): Size.of(1, split.unit) if split.unit != "1" else Size.of(1)}
        name = self.op_name(record)
        assert rows is not None
        return [self.op("gather", name, [UseTemplate(table, taken)], [self.make(out, name)])]

    def _attention(self, record: Record) -> Node:
        """softmax(q kᵀ) v as one kernel."""
        query, key, value = record.reads[:3]
        mask, name = self._mask(record), self.op_name(record)
        (_, heads, _, depth), (_, groups, _, _) = (self._plain(v) for v in (query, key))
        width = self._plain(value)[3]
        k, g = groups, heads // groups if heads % groups == 0 else 1
        per_head = {"K": Size.of(k), "G": Size.of(g)}
        places = self._places(query, key)
        q = self.rows(query, {**places.queries, **per_head, "H": Size.of(depth)})
        rows = {**places.keys, "K": Size.of(k)}
        keys = self._kept_use(key, 0, {**rows, "H": Size.of(depth)})
        values = self._kept_use(value, -1, {**rows, "Hv": Size.of(width)})
        pairs = TensorTemplate(self.unique(name + ".qk"), {**per_head, **places.pairs})
        weights = TensorTemplate(self.unique(name + ".p"), pairs.axes)
        sinks = [self.weight(p, "bias").part() for v in record.reads[3:] if (p := self.param(v))]
        out = self.make(record.writes[0], name, {**places.queries, **per_head, "Hv": Size.of(width)})
        rate = ELEMENTWISE_RATE["softmax"]
        body = (
            self.op("contract", pairs.name, [q, keys], [pairs.part()], cls="attention", mask=mask),
            self.op("map", weights.name, [pairs.part(), *sinks], [weights.part()], fn="softmax", rate=rate,
                    attrs={"mask": mask}, mask=mask),
            self.op("contract", name, [weights.part(), values], [out], cls="attention", mask=mask),
        )  # fmt: skip
        return BlockTemplate(name=self.unique(name + ".core"), body=body, kernel=places.kernel)

    def _places(self, query: Value, key: Value) -> Places:
        """Where queries and keys stand: tokens and what is cached of them, else as many as the tensors have."""
        (*apart, new, _), (*_, old, _) = (self.aligned.shape(v) for v in (query, key))
        apart = [extent for i, extent in enumerate(apart) if i == 0 or any(term.powers != FIXED for term in extent)]
        q, k, pairs = (self.sizes.split([*apart, *extents]) for extents in ([new], [old], [new, old]))
        tokens = pairs.unit == "P" and q.number == k.number == 1
        if tokens or id(self.root(key)) in self.states or self.sizes.decode:
            cached = "C" if self.facts.caches else "T"
            return Places({"T": Size.of(1, "T")}, {"C": Size.of(1, cached)}, {"P": Size.of(1, "P")}, "attention")
        queries = q.axes(row="Rq")
        columns = "C" if pairs.unit == "P" else "T"
        keys = {(columns if axis == "T" else axis): size for axis, size in k.axes(row="Rk").items()}
        numbers = {axis: size for axis, size in (queries | keys).items() if axis in ("Rq", "Rk")}
        return Places(queries, keys, pairs.axes() | numbers, "")

    def _plain(self, value: Value) -> tuple[int, int, int, int]:
        """Sizes of (sequences, heads, tokens, width); of three dimensions one head."""
        sizes = tuple(int(sum(t.coefficient for t in extent)) for extent in self.aligned.shape(value))
        return sizes if len(sizes) == 4 else (sizes[0], 1, *sizes[-2:])  # type: ignore[return-value]

    def _kept_use(self, value: Value, which: int, axes: Sizes) -> UseTemplate:
        """Keys or values: of the cache where they are kept in one. which: of several caches of one tensor."""
        states = self.states.get(id(self.root(value)), [])
        return UseTemplate(states[which], axes) if states else self.rows(value, axes)

    def _product(self, record: Record) -> list[Node]:

        return lower_product(self, record, operands_of(record, self.aligned))


def _varying(loop: Loop) -> frozenset[str]:
    """Parameters of the first repetition in whose place the second has another."""
    found = set()
    for other in loop.rest[:1]:
        for a, b in zip(all_records(loop.body), all_records(other), strict=True):
            for x, y in zip(a.reads, b.reads, strict=False):
                if x.root.param and x.root.param != y.root.param:
                    found.add(x.root.param)
    return frozenset(found)


def _common_prefix(names: Sequence[str]) -> str:
    """The module that all calls are in."""
    parts = [name.split(".") for name in names]
    found = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        found.append(level[0])
    return ".".join(found)
