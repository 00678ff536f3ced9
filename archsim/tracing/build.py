"""Modules on the `meta` device, without weights: of a transformers type or config, or of a class in a file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from archsim.base.diagnostics import quote
from archsim.base.errors import ArchsimError, SpecError, UnknownName, UsageError
from archsim.base.json_types import JsonMapping
from archsim.tracing.inputs import Arguments, Sizes, choices
from archsim.tracing.untyped import Untyped

CACHES = ("past_key_values", "cache_params", "state", "states", "cache", "kv_cache", "past")
"""Names by which modules take and return what they keep between steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A module that can be captured. name: as printed. config: of transformers. default: the format of parameters
    that follow the config. both: whether it takes tokens for an encoder and for a decoder. arguments: what its forward
    pass is given.
    """

    name: str
    net: nn.Module
    config: Untyped = None
    default: str | None = None
    both: bool = False
    arguments: Arguments = ()

    @property
    def choices(self) -> list[Module]:
        """The same with each choice of arguments that it may need."""
        if getattr(self.net, "archsim_inputs", None) is not None:
            return [self]
        return [replace(self, arguments=held) for held in choices(self.signature, self.config, self.both)]

    @property
    def signature(self) -> dict[str, inspect.Parameter]:
        """Arguments of `forward`."""
        return dict(inspect.signature(self.net.forward).parameters)

    def inputs(self, batch: int, new: int, cache: tuple[str, Untyped] | None = None) -> dict[str, Untyped]:
        """Arguments of a forward pass of so many sequences and tokens, after what `cache` holds."""
        own = getattr(self.net, "archsim_inputs", None)
        if own is not None:
            given = dict(own(batch, new))
        else:
            held = self.arguments or self.choices[0].arguments
            numbers = next((p.dtype for p in self.net.parameters() if p.is_floating_point()), torch.get_default_dtype())
            given = {argument.name: argument.tensor(Sizes(batch, new), numbers) for argument in held}
        if cache is not None:
            given[cache[0]] = cache[1]
        if self.keeps_cache and "use_cache" in self.signature:
            given["use_cache"] = True
        return given

    @property
    def keeps_cache(self) -> bool:
        """Whether `forward` takes what an earlier call kept."""
        return not self.both and any(name in self.signature for name in CACHES) and not self._encodes

    @property
    def _encodes(self) -> bool:
        return self.config is not None and _is_encoder(self.config)

    def cache_of(self, result: Untyped) -> tuple[str, Untyped] | None:
        """What a call kept, with the argument that takes it."""
        if not self.keeps_cache:
            return None
        argument = next(name for name in CACHES if name in self.signature)
        for name in CACHES:
            kept = result.get(name) if isinstance(result, Mapping) else getattr(result, name, None)
            if kept is not None:
                return (name if name in self.signature else argument), kept
        if isinstance(result, tuple) and type(result) is tuple and len(result) > 1 and result[1] is not None:
            return argument, result[1]
        return None


# ---------------------------------------------------------------------- a class in a file
def from_file(path: Path, name: str) -> Module:
    """The module of a class (or of a function without arguments) in a Python file, which is run.

    Raises SpecError for a file that cannot be run, UnknownName for a name that it lacks.
    """
    with _quiet(), _beside(path), torch.device("meta"):
        try:
            space = _run_file(path)
        except Exception as error:
            raise _own_error(path, error, "cannot be run") from None
        made = getattr(space, name, None)
        if made is None:
            raise _no_such_class(path, name, space)
        try:
            net = made if isinstance(made, nn.Module) else _built_without_data(made)
        except Exception as error:
            hint = (
                f"`{name}()` is called without arguments: give its sizes as defaults, or name a function that builds it"
            )
            raise _own_error(path, error, f"cannot build {name}", hint) from None
    if not isinstance(net, nn.Module):
        raise SpecError(f"{quote(name)} of {quote(path)} does not return a torch.nn.Module", code="E109")
    return Module(name, net.eval())


def _package(path: Path) -> tuple[Path, str]:
    """The folder that imports of a file start from, and the file's name there: a.b of a package, else its own."""
    root, parts = path.resolve().parent, [path.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    return root, ".".join(parts)


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    """Imports find the modules beside a file, as when Python runs it."""
    folder = str(_package(path)[0])
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _run_file(path: Path) -> ModuleType:
    """The namespace of a Python file; of one in a package as that package's module, so that relative imports work."""
    _, dotted = _package(path)
    name = dotted if "." in dotted else f"archsim_module_{path.stem}"
    if "." in dotted:
        importlib.import_module(dotted.rpartition(".")[0])
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    space = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = space
    spec.loader.exec_module(space)
    return space


def _built_without_data(make: Callable[[], Untyped]) -> Untyped:
    """What a class or function builds on `meta`. One that asks for the numbers of a list that it has just made (rates
    that rise with depth), or for an operation that needs data (a sparse table), is built again with such lists held.
    """
    try:
        return make()
    except (RuntimeError, NotImplementedError) as error:
        if "meta" not in str(error).lower():
            raise
    with _Lists():
        net = make()
    if isinstance(net, nn.Module):
        for part in net.modules():
            for name, buffer in part.named_buffers(recurse=False):
                setattr(part, name, torch.empty(buffer.shape, dtype=buffer.dtype, device="meta"))
    return net


class _Lists(TorchFunctionMode):
    """Makes lists of numbers on the processor, where their values can be asked for, and runs there on zeros what has no
    form without data.
    """

    def __torch_function__(self, func: Untyped, types: Untyped, args: Untyped = (), kwargs: Untyped = None) -> Untyped:
        kwargs = dict(kwargs or {})
        if func in (torch.linspace, torch.arange, torch.logspace, torch.tensor):
            kwargs.setdefault("device", "cpu")
        try:
            return func(*args, **kwargs)
        except NotImplementedError:
            held, named = tree_map(_zeros, (args, kwargs))
            return func(*held, **named)


def _zeros(value: Untyped) -> Untyped:
    """A tensor of zeros on the processor in place of one without data."""
    if not isinstance(value, torch.Tensor) or not value.is_meta:
        return value
    return torch.zeros(value.shape, dtype=value.dtype, device="cpu")


def _no_such_class(path: Path, name: str, space: Untyped) -> UnknownName:
    own = [n for n, v in vars(space).items() if inspect.isclass(v) and issubclass(v, nn.Module)]
    hint = f"modules in it: {', '.join(own)}" if own else "no class in it is a torch.nn.Module"
    return UnknownName(f"{quote(path)} has no {quote(name)}", hints=(hint,))


def _own_error(path: Path, error: Exception, what: str, *hints: str) -> SpecError:
    """An error in the user's own code, by its kind, text and last line in that file."""
    line, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = f", line {trace.tb_lineno}"
        trace = trace.tb_next
    text = str(error).strip().splitlines()[0][:200] if str(error).strip() else ""
    return SpecError(f"{quote(path)} {what}: {type(error).__name__}: {text}{line}", code="E109", hints=hints)


# ---------------------------------------------------------------------- transformers
def from_transformers(config: str | JsonMapping, name: str | None = None) -> Module:
    """transformers' own class for a model type, or for what a config.json holds. No code beside transformers is run.

    Raises UsageError without transformers, UnknownName for a type that it does not have, SpecError for a config that it
    refuses.
    """
    try:
        import transformers
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError:
        hint = "pip install 'archsim[hf]'"
        raise UsageError("`--via transformers` needs transformers and torch", hints=(hint,)) from None
    given: JsonMapping = {"model_type": config} if isinstance(config, str) else config
    model_type = str(given.get("model_type"))
    if model_type not in CONFIG_MAPPING:
        remote = " (its own code, which `auto_map` points to, is never run)" if "auto_map" in given else ""
        text = f"transformers {transformers.__version__} has no model type {quote(model_type)}{remote}"
        raise UnknownName(text, hints=("write the module in a file of your own: `file.py:Class`",))
    ignored = ("auto_map", "quantization_config")
    with _quiet():
        try:
            made = CONFIG_MAPPING[model_type].from_dict({k: v for k, v in given.items() if k not in ignored})
            net = _built(transformers, made)
        except ArchsimError:
            raise
        except Exception as error:
            text = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise SpecError(f"transformers cannot build {quote(model_type)}: {text}", code="E102") from None
    language = made.get_text_config()
    stored = getattr(made, "dtype", None) or getattr(language, "dtype", None) or "bfloat16"
    both = (
        bool(getattr(made, "is_encoder_decoder", False))
        and "decoder_input_ids" in inspect.signature(net.forward).parameters
    )
    return Module(name or model_type, net.eval(), made, str(stored).removeprefix("torch."), both)


HEADS = (
    "SEQ_TO_SEQ_CAUSAL_LM",
    "IMAGE_TEXT_TO_TEXT",
    "MULTIMODAL_LM",
    "CAUSAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "TEXT_ENCODING",
)
"""transformers' maps from a type to its class with a head, those with more of the model first."""


def _is_encoder(config: Untyped) -> bool:
    """Whether the type is an encoder of text: with a head for masked tokens, and not used as a decoder."""
    from transformers.models.auto import modeling_auto

    maps = {name: getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING_NAMES") for name in ("MASKED_LM", *HEADS)}
    kind, decodes = config.model_type, getattr(config, "is_decoder", False)
    if getattr(config, "is_encoder_decoder", False) or decodes:
        return False
    return kind in maps["MASKED_LM"] or (kind in maps["TEXT_ENCODING"] and kind not in maps["CAUSAL_LM"])


def _built(transformers: Untyped, config: Untyped) -> nn.Module:
    from transformers.models.auto import modeling_auto

    name = None
    if not _is_encoder(config):
        for kind in HEADS:
            known = getattr(modeling_auto, f"MODEL_FOR_{kind}_MAPPING_NAMES")
            if config.model_type in known and not (kind == "SEQ_TO_SEQ_CAUSAL_LM" and not config.is_encoder_decoder):
                name = known[config.model_type]
                break
    name = name or modeling_auto.MODEL_MAPPING_NAMES[config.model_type]
    made = getattr(transformers, name if isinstance(name, str) else name[0])
    _choose_experts(config)
    for attention in ("sdpa", "eager"):
        try:
            with torch.device("meta"), _no_init(transformers):
                found: nn.Module = made._from_config(config, attn_implementation=attention)
            found.tie_weights()  # type: ignore[operator]
            return found
        except (ValueError, ImportError) as error:
            if attention == "eager" or "attention" not in str(error).lower():
                raise
    raise AssertionError


def _choose_experts(config: Untyped) -> None:
    """Experts as batched products, whose shapes do not depend on data."""
    for part in (config, *(v for v in vars(config).values() if hasattr(v, "model_type"))):
        part._experts_implementation = "batched_mm"


@contextmanager
def _no_init(transformers: Untyped) -> Iterator[None]:
    try:
        from transformers.initialization import no_init_weights
    except ImportError:
        yield
        return
    with no_init_weights():
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of the libraries, which are about weights and speed."""
    import logging

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def attention_hints(module: Module) -> Callable[[Untyped], Untyped] | None:
    """A context in which attention of transformers says whether it is causal, and how far it looks back."""
    if module.config is None:
        return None
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    @contextmanager
    def hints(recorder: Untyped) -> Iterator[None]:
        found = ALL_ATTENTION_FUNCTIONS.get_interface

        def interface(*args: Untyped, **kwargs: Untyped) -> Untyped:
            return partial(_attend, recorder, found(*args, **kwargs))

        ALL_ATTENTION_FUNCTIONS.get_interface = interface  # type: ignore[method-assign]
        try:
            yield
        finally:
            del ALL_ATTENTION_FUNCTIONS.get_interface

    return hints


def _attend(
    recorder: Untyped, plain: Callable[..., Untyped], layer: Untyped, *args: Untyped, **kwargs: Untyped
) -> Untyped:
    """One attention of transformers as one operation, with what its layer says of the mask."""
    if not recorder.recording:
        return plain(layer, *args, **kwargs)
    recorder.recording = False
    try:
        result = plain(layer, *args, **kwargs)
    finally:
        recorder.recording = True
    causal = kwargs.get("is_causal")
    causal = getattr(layer, "is_causal", None) if causal is None else causal
    named = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
    sinks = [named[name] for name in ("s_aux", "sinks") if isinstance(named.get(name), torch.Tensor)]
    attrs = {"causal": causal, "window": int(kwargs.get("sliding_window") or 0)}
    recorder.add("attention", [named["query"], named["key"], named["value"], *sinks], [result[0]], attrs)
    return result
