"""What the modelled parts of a device's memory are of, in the words of the engine's rules."""

from __future__ import annotations

from collections.abc import Collection

from archsim.memory.engine_rules import EngineMemory
from archsim.predict.assumptions import GRAPHS
from archsim.render.page import plural
from archsim.spec.engine import Engine
from archsim.spec.model import Model, Tower


def step_text(rules: Engine, tokens: int, seqs: int) -> str:
    """What step the activations are of. tokens, seqs: of the engine's largest step."""
    if rules.memory.activations.profile == "chunk":
        return f"a step of {tokens:,} tokens, {plural(seqs, 'sequence')}"
    return "peak of prefill"


def towers_remark(model: Model, loaded: Collection[Tower]) -> str:
    """What the weights in memory hold of a model with towers; nothing of one without."""
    if not model.towers:
        return ""
    if not loaded:
        return "text part"
    names = " and ".join(tower.name for tower in loaded)
    return f"with the {names} {'tower' if len(loaded) == 1 else 'towers'}"


def graphs_name(vendor: str) -> str:
    """What a vendor calls steps that are captured once and launched as one."""
    return GRAPHS.get(vendor, "captured graphs")


def runtime_parts(division: EngineMemory, vendor: str) -> str:
    """What the process keeps beside weights, steps and caches: `context, libraries, CUDA graphs`."""
    sizes = {graphs_name(vendor): division.graphs, "padded weights": division.layout, "other parts": division.extra}
    more = [name for name, size in sizes.items() if size]
    return ", ".join(("context", "libraries", *more)) if more else "context and libraries"
