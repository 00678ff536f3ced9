"""What of a model is trained: every weight, or adapters (LoRA, QLoRA) beside frozen ones."""

from __future__ import annotations

from typing import NamedTuple

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note
from archsim.graph.passes.adapters import Adapters, is_adapter
from archsim.graph.passes.grad_plan import Trainable, everything
from archsim.spec.recipe import Method, Recipe, load_recipe
from archsim.spec.stack import TrainingStack

RECIPES: dict[str, str] = {"lora": "lora", "qlora": "qlora-nf4"}
"""Recipes of methods that train adapters, where none is named; full training takes the stack's."""


class Tuning(NamedTuple):
    """A method with its recipe. adapters: none where every weight is trained."""

    method: Method
    recipe: Recipe
    adapters: Adapters | None = None
    assumptions: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()

    @property
    def trainable(self) -> Trainable:
        """Which weights are updated."""
        return everything if self.adapters is None else is_adapter


def tuning_of(
    stack: TrainingStack, method: str | None = None, recipe: str | None = None, rank: int | None = None,
    targets: str | tuple[str, ...] | None = None,
) -> Tuning:  # fmt: skip
    """What is trained and stored how. A recipe that is made for adapters brings its method along.

    Raises UsageError for an unknown method, and for a rank or targets where no adapters are trained; UnknownName.
    """
    known = None if method is None else method_named(method)
    chosen = recipe_of(stack, recipe or RECIPES.get(known or "", stack.recipe))
    how: Method = known or ("lora" if chosen.method == "full" and (rank or targets) else chosen.method)
    if how == "full":
        if rank is not None or targets is not None:
            raise UsageError(
                "--rank and --targets are of adapters, and --method full has none", hints=("take --method lora",)
            )
        return Tuning(how, chosen, warnings=_unused(chosen))
    if recipe is None and how != chosen.method:
        chosen = recipe_of(stack, RECIPES[how])
    return Tuning(how, chosen, _adapters(rank, targets), _defaults(rank, targets))


def recipe_of(stack: TrainingStack, name: str) -> Recipe:
    """A recipe as a stack runs it. Raises UnknownName, SpecError."""
    recipe = load_recipe(name)
    changes: JsonObject = {"copies_alone": True} if recipe.name in stack.copies_alone else {}
    if stack.gradient_sums is not None:
        changes |= {"gradients": stack.gradient_sums, "reduced": None}
    return recipe.model_copy(update=changes) if changes else recipe


def method_named(name: str) -> Method:
    """The method of a name."""
    methods: dict[str, Method] = {"full": "full", "lora": "lora", "qlora": "qlora"}
    if name.strip().lower() not in methods:
        raise UsageError(f"no method named {name[:60]!r}", hints=(f"methods: {', '.join(methods)}",))
    return methods[name.strip().lower()]


def _adapters(rank: int | None, targets: str | tuple[str, ...] | None) -> Adapters:
    if rank is not None and rank < 1:
        raise UsageError(f"the rank of adapters is at least 1, not {rank}")
    default = Adapters()
    names = targets.split(",") if isinstance(targets, str) else list(targets or default.targets)
    return Adapters(rank or default.rank, tuple(name.strip() for name in names if name.strip()) or default.targets)


def _defaults(rank: int | None, targets: str | tuple[str, ...] | None) -> tuple[Note, ...]:
    if rank is not None and targets is not None:
        return ()
    adapters = _adapters(rank, targets)
    where = "every product of the layers" if "all" in adapters.targets else ", ".join(adapters.targets)
    return (Note("A46", f"adapters have rank {adapters.rank}, on {where}, unless --rank and --targets say otherwise"),)


def _unused(recipe: Recipe) -> tuple[Note, ...]:
    if recipe.method == "full":
        return ()
    text = f"the recipe {recipe.name} is made for --method {recipe.method}: here it trains every weight of the model"
    return (Note("W14", text),)
