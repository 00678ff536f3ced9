"""Which keys of a config the class of a family reads, from the source of transformers: the others change nothing.

`python -m archsim.importers.hf.class_keys` writes `class_keys.json` beside this file from the installed transformers,
whose source is parsed and never run. A newer version that is installed is read in place of the file.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

from archsim.base.json_types import JsonMapping

DATA = Path(__file__).with_name("class_keys.json")

SHARED = ("modeling_rope_utils", "masking_utils", "cache_utils", "modeling_utils", "modeling_layers")
"""Modules outside a family's folder whose reads count for every family."""

TASKS = re.compile(r"For(Sequence|Token|Question|MultipleChoice|NextSentence|AudioFrame|Image)\w*$|Loss$|Dropout$")
"""Classes for other tasks than language modelling, and what only training runs."""

LANGUAGE = re.compile(r"(For(CausalLM|ConditionalGeneration|MaskedLM|PreTraining)|LMHeadModel|TextModel)$")
"""Classes that a config of a language model may name."""

TRAINING = re.compile(r"init_weights|initialize|loss|dropout|drop_path|prune")
"""Names of functions, calls and targets that initialise or train."""

HARMLESS_NAMES = re.compile(
    r"drop(out|_rate|_path)|_pdrop\b|^init(ializer|_|$)|initializer|_init_|_tokens?_(id|ids|index|list)$|(^|_)(bos|eos|pad|sep|cls|mask|unk|boi|eoi)_token$"
    r"|(^|_)loss(_|$)|aux_|_coef(f|ficient)?$|^use_cache|gradient|^label|^id2label|noise|jitter|^pretrain"
    r"|^architectures$|^tokenizer|version$|dtype$|_implementation$|^_"
)
"""Keys about dropout, initialisation, tokens and training."""

STRUCTURE = re.compile(
    r"att(n|ention)|head|layer|expert|moe|hidden|dim|size|width|(?<!re)rank|window|mlp|ffn|ff_|intermediate|conv|state|cache"
    r"|kv|(^|_)[qkv]_|rope|rotary|position|mtp|nextn|predict|router|rout|top_?k|share|block|embed|vocab|lora|latent|index"
    r"|sparse|ssm|mamba|gate|norm|act|bias|tie|scale|factor|num_|^n_|depth|stack|chunk|compress|hash|residual|stream"
    r"|mem|regist|mult|gram|config$|table|branch|loop|recur|adapter|project|kernel"
)
"""Words for parts and sizes: a key of which no class has heard and that has one of them may be one of those."""


PREDICTION = re.compile(r"(^|_)(mtp|nextn|dspark|dflash|eagle3?|medusa)(_|$)")
"""Keys of prediction modules, which stand apart from the model: their reader names those that it understands."""

DRAFTER = re.compile(r"Draft|Eagle|DFlash|DSpark|Medusa")
"""Classes of what drafts for another model: a head on its layers' outputs, which no file of a whole model is."""


STRICT = ("quantization_config", "quantization", "rope_parameters", "rope_scaling")
"""Nested mappings that no class reads by name: formats of weights, and positions."""


COMMON = 5
"""Families that have a key which files are taken to copy from each other."""


class ClassKeys(NamedTuple):
    """version: of transformers. folders: model type to its folder, where that is not its name. reads: folder to the
    keys that its classes read. declared: folder to the keys that its configs have and its classes do not read.
    common: keys that the configs of several families have. classes: folder to the names of its language models.
    shared: keys that are read for every family, where a config has them. aliases: model type to the other names under
    which its config class takes a key, and the key. composites: folder to the names of its models around a language
    model of another folder.
    """

    version: str
    folders: Mapping[str, str]
    reads: Mapping[str, frozenset[str]]
    declared: Mapping[str, frozenset[str]]
    common: frozenset[str]
    classes: dict[str, frozenset[str]]
    shared: frozenset[str]
    aliases: Mapping[str, Mapping[str, str]]
    composites: dict[str, frozenset[str]]

    def folder(self, model_type: str) -> str:
        """The folder with the classes of a model type."""
        return self.folders.get(model_type, model_type.replace("-", "_"))


def without_effect(key: str, value: object, model_type: str, own_code: bool, its_class: bool = False) -> bool:
    """Whether no count, shape or time depends on a key that the importer does not know.

    True for what the family's class reads for dropout, initialisation, tokens or training; for what its config has
    and its class never reads; for nulls of what only code for all families reads; for prediction modules; and for
    keys of several families that it does not read, which files copy from each other. A key that hardly any class has
    heard of, or one beside code of the checkpoint's own (own_code), is believed to change nothing only where its value
    switches nothing on or its name speaks of no part and no size. Where a class of transformers is known to run
    (its_class), no switch and no word that it does not read changes anything; a size may be of another class's part.
    """
    *outer, key = key.split(".")
    if outer and outer[0] in STRICT:
        return False
    if HARMLESS_NAMES.search(key):
        return True
    keys = class_keys()
    folder = keys.folder(model_type)
    read = keys.reads.get(folder)
    if read is not None and value is None and key in keys.shared:
        return True
    if read is None or key in read:
        return False
    if its_class and isinstance(value, bool | str):
        return True
    if adds_nothing(key, value) or (PREDICTION.search(key) and not own_code):
        return True
    return key in keys.declared.get(folder, ()) or (key in keys.common and not own_code)


def adds_nothing(key: str, value: object) -> bool:
    """Whether a key switches nothing on by its value, or speaks by its name of no part and no size."""
    return value in (None, False, "", []) or not (isinstance(value, dict) or STRUCTURE.search(key))


def runs_own_code(config: JsonMapping, model_type: str) -> bool:
    """Whether a config names code of the checkpoint's own, and no class of this name is in transformers: a file of
    before its family was taken over names both, and what runs it reads what the class reads.
    """
    if not isinstance(config.get("auto_map"), Mapping) or not config["auto_map"]:
        return False
    named, keys = config.get("architectures"), class_keys()
    known = keys.classes.get(keys.folder(model_type), frozenset[str]())
    return not (isinstance(named, list) and named and all(isinstance(n, str) and n in known for n in named))


def drafters(config: JsonMapping) -> list[str]:
    """The classes of a config that draft for another model, whose keys of drafting are no side matter."""
    named = config.get("architectures")
    return [n for n in named if isinstance(n, str) and DRAFTER.search(n)] if isinstance(named, list) else []


def runs_its_class(config: JsonMapping) -> bool:
    """Whether a config says that a class of transformers runs it whose source is known: one that names only language
    models of its type, no code of the checkpoint's own, and a version of transformers not after the known one.
    """
    named, given, keys = config.get("architectures"), config.get("model_type"), class_keys()
    version = str(config.get("transformers_version") or "")
    if config.get("auto_map") or not isinstance(named, list) or not named or not isinstance(given, str):
        return False
    known = (keys.classes | keys.composites).get(keys.folder(given), frozenset[str]())
    return bool(_ordered(version)) and _ordered(version) <= _ordered(keys.version) and known.issuperset(map(str, named))


def is_foreign(name: str, model_type: str) -> bool:
    """Whether a class is none of the language models of a family that transformers has, nor called after it."""
    keys = class_keys()
    folder = keys.folder(model_type)
    known, stem = keys.classes.get(folder), folder.replace("_", "")
    return known is not None and name not in known and not name.lower().startswith(stem)


def is_known_elsewhere(model_type: str) -> bool:
    """Whether transformers has a type, so that its code, and no guess, says what a config of it means."""
    keys = class_keys()
    folder = keys.folder(model_type)
    return any(folder in found for found in (keys.reads, keys.classes, keys.composites))


def has_classes(model_type: str) -> bool:
    """Whether transformers has language models of a type, which it builds where a file states the type."""
    keys = class_keys()
    return bool(keys.classes.get(keys.folder(model_type)))


def under_own_names(config: JsonMapping, model_type: str) -> tuple[JsonMapping, Mapping[str, str]]:
    """The config with what it says under another name that the family's config class takes (`attribute_map`: GPT-2's
    `hidden_size` is `n_embd`) under its own as well, and those other names with their own. A key of the file stays.
    """
    names = class_keys().aliases.get(model_type, {})
    used = {alias: own for alias, own in names.items() if alias in config and config.get(own) is None}
    return {**config, **{own: config[alias] for alias, own in used.items()}}, used


@lru_cache(maxsize=1)
def same_size() -> Mapping[str, frozenset[str]]:
    """Key -> all names that families of transformers give to the same size: width, layers, heads, experts."""
    pairs = {frozenset(pair) for names in class_keys().aliases.values() for pair in names.items()}
    groups = [frozenset(key for pair in pairs if size in pair for key in pair) - NOT_THE_SAME for size in SIZES]
    return {key: group for group in groups for key in group}


SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_local_experts")
"""Keys of sizes that have many names."""

NOT_THE_SAME = {"num_key_value_heads"}
"""A size that families without it take from another one."""


@lru_cache(maxsize=1)
def class_keys() -> ClassKeys:
    """The keys of the file, or of the installed transformers where that is newer."""
    found = json.loads(DATA.read_text("utf-8"))
    if _ordered(_installed()) > _ordered(found["transformers"]):
        return derive()
    shared = frozenset(found["shared"].split())
    reads = {folder: shared.union(keys.split()) for folder, keys in found["reads"].items()}
    declared = {folder: frozenset(keys.split()) for folder, keys in found["declared"].items()}
    classes = {folder: frozenset(names.split()) for folder, names in found["classes"].items()}
    common = frozenset(found["common"].split())
    aliases = {name: dict(pair.split("=") for pair in pairs.split()) for name, pairs in found["aliases"].items()}
    composites = {folder: frozenset(names.split()) for folder, names in found["composites"].items()}
    version, folders = found["transformers"], found["folders"]
    return ClassKeys(version, folders, reads, declared, common, classes, shared, aliases, composites)


def _installed() -> str:
    try:
        return metadata.version("transformers")
    except metadata.PackageNotFoundError:
        return ""


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:3])


# ---------------------------------------------------------------------- from the source
def derive() -> ClassKeys:
    """The keys by the source of the installed transformers. Raises ModuleNotFoundError without it."""
    found = util.find_spec("transformers")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("transformers is not installed")
    root = Path(found.origin).parent
    shared: frozenset[str] = frozenset().union(*(_reads(root / f"{name}.py") for name in SHARED))
    reads: dict[str, frozenset[str]] = {}
    declared: dict[str, frozenset[str]] = {}
    classes: dict[str, frozenset[str]] = {}
    aliases: dict[str, dict[str, str]] = {}
    composites: dict[str, frozenset[str]] = {}
    for folder in sorted(p for p in (root / "models").iterdir() if p.is_dir()):
        configs = [*folder.glob("configuration_*.py")]
        fields = frozenset[str]().union(*(_fields(file) for file in configs))
        named = [pair for file in configs for pair in _aliases(file).items()] if "vocab_size" in fields else []
        aliases |= dict(named)
        models = frozenset[str]().union(*(_models(file) for file in folder.glob("modeling_*.py")))
        if "vocab_size" in fields:
            classes[folder.name] = models
            own = frozenset[str]().union(*(_reads(file) for file in [*folder.glob("modeling_*.py"), *configs]))
            reads[folder.name], declared[folder.name] = own | shared, fields - own - shared
        else:
            declared[folder.name], composites[folder.name] = fields, models
    having = Counter(key for folder in declared for key in declared[folder] | reads.get(folder, frozenset()) - shared)
    common = frozenset(key for key, n in having.items() if n >= COMMON)
    return ClassKeys(_installed(), _folders(root), reads, declared, common, classes, shared, aliases, composites)


def _folders(root: Path) -> dict[str, str]:
    """Model types whose folder has another name."""
    tree = ast.parse((root / "models" / "auto" / "auto_mappings.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and "SPECIAL_MODEL_TYPE_TO_MODULE_NAME" in ast.unparse(node.targets[0]):
            pairs = ast.literal_eval(node.value.args[0] if isinstance(node.value, ast.Call) else node.value)
            return dict(pairs)
    return {}


def _models(path: Path) -> frozenset[str]:
    """Names of the language models in a file."""
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef) and LANGUAGE.search(node.name))


def _fields(path: Path) -> set[str]:
    """Fields of the config classes in a file."""
    tree = ast.parse(path.read_text("utf-8"))
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {item.target.id for c in classes for item in c.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)}  # fmt: skip


def _aliases(path: Path) -> dict[str, dict[str, str]]:
    """Model type -> the `attribute_map` of its config class, for the classes of a file that have both."""
    tree = ast.parse(path.read_text("utf-8"))
    found: dict[str, dict[str, str]] = {}
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        set_here = {ast.unparse(item.targets[0]): item.value for item in node.body if isinstance(item, ast.Assign)}
        given, names = set_here.get("model_type"), set_here.get("attribute_map")
        if isinstance(given, ast.Constant) and isinstance(names, ast.Dict) and names.keys:
            found[str(given.value)] = dict(ast.literal_eval(names))
    return found


def _reads(path: Path) -> frozenset[str]:
    """Keys that a file reads of a config, training apart."""
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(_visit(tree, path.stem.startswith("configuration_")))


def _visit(node: ast.AST, in_config: bool) -> Iterator[str]:
    """Keys read below a node."""
    if isinstance(node, ast.ClassDef) and TASKS.search(node.name):
        return
    if isinstance(node, ast.FunctionDef | ast.Call | ast.keyword | ast.Assign) and TRAINING.search(_title(node)):
        return
    yield from _key(node, in_config)
    for child in ast.iter_child_nodes(node):
        yield from _visit(child, in_config)


def _title(node: ast.AST) -> str:
    """What a function, a call, an argument or a target is called."""
    if isinstance(node, ast.FunctionDef):
        return node.name
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).lower()
    if isinstance(node, ast.keyword):
        return node.arg or ""
    return ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""


def _key(node: ast.AST, in_config: bool) -> Sequence[str]:
    """The key that one node reads: an attribute of a config, or a name in quotes that is looked up."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        owner = ast.unparse(node.value).lower()
        config = "config" in owner.rsplit(".", 1)[-1] or (in_config and owner == "self")
        return [node.attr] if config else []
    if isinstance(node, ast.Call) and node.args:
        called = ast.unparse(node.func).rsplit(".", 1)[-1]
        texts = [a.value for a in node.args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        return (
            [text for text in texts if text.isidentifier()]
            if called in ("getattr", "hasattr", "pop", "get", "setdefault")
            else []
        )
    if isinstance(node, ast.Assign | ast.AnnAssign) and in_config and "attribute_map" in ast.unparse(node):
        return [c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, str)]
    return []


def main() -> None:
    """Write the file; what all families read stands in it once."""
    found = derive()
    shared = frozenset.intersection(*found.reads.values())
    document = {
        "transformers": found.version,
        "folders": {name: folder for name, folder in sorted(found.folders.items()) if folder in found.reads},
        "common": " ".join(sorted(found.common)),
        "shared": " ".join(sorted(shared)),
        "reads": {folder: " ".join(sorted(keys - shared)) for folder, keys in found.reads.items()},
        "declared": {folder: " ".join(sorted(found.declared[folder])) for folder in found.reads},
        "classes": {folder: " ".join(sorted(names)) for folder, names in found.classes.items() if names},
        "composites": {folder: " ".join(sorted(names)) for folder, names in found.composites.items() if names},
        "aliases": {
            name: " ".join(f"{alias}={own}" for alias, own in sorted(pairs.items()))
            for name, pairs in sorted(found.aliases.items())
        },
    }
    DATA.write_text(json.dumps(document, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
