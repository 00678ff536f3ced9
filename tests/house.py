"""Measures of the code base: `python tests/house.py` prints them, `test_house.py` holds them to their bars."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "archsim"


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file of every module."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"))


def lines() -> dict[str, int]:
    """Lines of Python by package, blank ones included."""
    count: Counter[str] = Counter()
    for name, path in modules().items():
        count[".".join(name.split(".")[:2])] += path.read_text("utf-8").count("\n")
    return dict(count)


def imports_of(name: str) -> set[str]:
    """Modules of archsim that a module imports, also inside functions and for type checking alone."""
    nodes = [node for node in ast.walk(tree(modules()[name])) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {target for node in nodes for target in targets(node) if target != name}


def targets(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Modules of archsim that one statement imports."""
    if isinstance(node, ast.Import):
        found = {alias.name for alias in node.names}
    else:
        inner = {f"{node.module}.{alias.name}" for alias in node.names}
        found = {name if name in modules() else str(node.module) for name in inner}
    return found & modules().keys()


def late_imports() -> dict[str, list[ast.Import | ast.ImportFrom]]:
    """Import statements inside functions, by module."""
    found: dict[str, list[ast.Import | ast.ImportFrom]] = {}
    for name, path in modules().items():
        functions = [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        inside = [node for f in functions for node in ast.walk(f) if isinstance(node, ast.Import | ast.ImportFrom)]
        found[name] = list(dict.fromkeys(inside))
    return found


def needless_late_imports() -> list[str]:
    """Imports inside functions of what has been loaded with the module already: they save no time."""
    loaded = {name: _top_level(tree(path).body) - {name} for name, path in modules().items()}
    reached = {name: _reached(name, loaded) for name in modules()}
    return [
        f"{name}:{node.lineno} {target}"
        for name, nodes in late_imports().items()
        for node in nodes
        for target in targets(node) & reached[name]
    ]


def _top_level(body: list[ast.stmt]) -> set[str]:
    """Modules that a module's own statements import, type checking aside."""
    plain = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    return {target for node in plain for target in targets(node)}


def _reached(name: str, loaded: dict[str, set[str]]) -> set[str]:
    """All modules that are loaded with one."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        new = loaded[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def class_names_twice() -> dict[str, set[str]]:
    """Names of classes that have two homes in one package level: package and name -> files."""
    homes: dict[str, set[str]] = defaultdict(set)
    for name, path in modules().items():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                homes[f"{name.rpartition('.')[0]}: {node.name}"].add(path.name)
    return {name: files for name, files in homes.items() if len(files) > 1}


def circles() -> list[list[str]]:
    """Groups of modules that import each other, directly or through others (strongly connected components)."""
    graph = {name: imports_of(name) for name in modules()}
    order: list[str] = []
    seen: set[str] = set()
    for name in graph:
        _visit(name, graph, seen, order)
    back: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        for target in targets:
            back[target].add(name)
    found, seen = [], set()
    for name in reversed(order):
        group: list[str] = []
        _visit(name, back, seen, group)
        if len(group) > 1:
            found.append(sorted(group))
    return found


def _visit(name: str, graph: dict[str, set[str]], seen: set[str], order: list[str]) -> None:
    if name not in seen:
        seen.add(name)
        for target in graph.get(name, ()):
            _visit(target, graph, seen, order)
        order.append(name)


def function_lengths() -> list[tuple[int, str]]:
    """Lines of every function, docstring included, with its place; the longest first."""
    found = [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{name}.{node.name}")
        for name, path in modules().items()
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    return sorted(found, reverse=True)


def folders() -> dict[str, int]:
    """Python files of every folder."""
    return dict(Counter(str(path.parent.relative_to(ROOT)) for path in modules().values()))


def uses_of_any() -> int:
    """Uses of the name `Any`, imports aside."""
    return sum(
        isinstance(node, ast.Name) and node.id == "Any" for path in modules().values() for node in ast.walk(tree(path))
    )


def namesakes() -> dict[tuple[str, str], list[str]]:
    """(package, class name) -> modules, where several modules of one package level define a class of one name."""
    homes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, path in modules().items():
        folder = str(path.parent.relative_to(ROOT))
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                homes[folder, node.name].append(name)
    return {key: where for key, where in homes.items() if len(where) > 1}


def main() -> None:
    """Prints every measure."""
    lengths = sorted(length for length, _ in function_lengths())
    for name, count in sorted(lines().items()):
        print(f"{count:7,} lines  {name}")
    print(f"{sum(lines().values()):7,} lines in all")
    print(
        f"functions: {len(lengths):,}, p50 {lengths[len(lengths) // 2]}, p90 {lengths[int(0.9 * len(lengths))]} lines"
    )
    print(f"functions over 60 lines: {sum(length > 60 for length in lengths)}")
    folder, most = max(folders().items(), key=lambda pair: pair[1])
    print(f"fullest folder: {folder}, {most} files")
    print(f"uses of Any: {uses_of_any()}")
    print(f"imports inside functions: {sum(map(len, late_imports().values()))}")
    print(f"circles of imports: {circles() or 'none'}")
    print(f"namesakes: {namesakes() or 'none'}")


if __name__ == "__main__":
    main()
