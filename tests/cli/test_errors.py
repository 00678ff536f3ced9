"""Whatever is wrong with a command line or a file: a message, the right exit code, no traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

GOOD = """\
name: x
d_model: 64
vocab_size: 100
layers:
  - repeat: 2
    attention: {kind: gqa, n_heads: 4, n_kv_heads: 2, d_head: 16}
    ffn: {kind: swiglu, d_ff: 128}
head: {tied: true}
"""
BAD = {
    "unknown field": (GOOD.replace("n_kv_heads", "n_kv_head"), "E103", 6, "n_kv_heads"),
    "wrong type": (GOOD.replace("d_ff: 128", 'd_ff: "128"'), "E102", 7, "write 128"),
    "duplicate key": (GOOD + "d_model: 3\n", "E105", 9, "given twice"),
    "YAML 1.1 boolean": (GOOD.replace("tied: true", "tied: yes"), "E107", 8, "write `true`"),
    "base 60": (GOOD.replace("vocab_size: 100", "vocab_size: 1:40"), "E107", 3, "base-60"),
    "octal": (GOOD.replace("vocab_size: 100", "vocab_size: 0100"), "E107", 3, "octal"),
    "impossible heads": (GOOD.replace("n_heads: 4", "n_heads: 5"), "E110", 6, "multiple"),
    "unknown kind": (GOOD.replace("kind: gqa", "kind: gqe"), "E112", 6, "gqa"),
    "not YAML": (GOOD + "notes: [1\n", "E106", 10, ""),
    "a list": ("- 1\n", "E109", 1, "mapping"),
}


def clean(result: Any) -> None:
    """No traceback and no internal error."""
    assert "Traceback" not in result.err + result.out
    assert "internal error" not in result.err + result.out


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("command", ["count", "estimate", "show"])
def test_bad_spec(name: str, command: str, archsim: Any, tmp_path: Path) -> None:
    """File, line, caret and advice on stderr, nothing on stdout, exit code 3, and no new file."""
    text, code, line, advice = BAD[name]
    path = tmp_path / "bad.yaml"
    path.write_text(text, "utf-8")
    args = [command, "./bad.yaml", *(["--hw", "h100"] if command == "estimate" else [])]
    result = archsim(*args, cwd=tmp_path)
    clean(result)
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith(f"error[{code}]: ")
    assert f"--> bad.yaml:{line}:" in result.err and "^" in result.err and advice in result.err
    assert [p.name for p in tmp_path.iterdir()] == ["bad.yaml"]


def test_bad_spec_as_json(archsim: Any, tmp_path: Path) -> None:
    """Under `--json` the error is an object on stdout with place and hints, and stderr is empty."""
    (tmp_path / "bad.yaml").write_text(BAD["unknown field"][0], "utf-8")
    result = archsim("count", "./bad.yaml", "--json", cwd=tmp_path)
    data = json.loads(result.out)
    assert (result.code, result.err) == (3, "")
    assert (data["schema"], data["code"], data["line"]) == ("archsim.error/1", "E103", 6)
    assert isinstance(data["hints"], list) and data["message"]


def _unreadable(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "empty.yaml").write_text("", "utf-8")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "huge.yaml").write_bytes(b"name: x\n#" + b"#" * 50_000_000)
    levels = zip("abcdefgh", "bcdefghi", strict=True)
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{c}: &{c} [{','.join(['*' + p] * 9)}]\n" for p, c in levels)
    (tmp_path / "bomb.yaml").write_text(bomb, "utf-8")
    return {"empty": "E109", "folder": "E109", "binary": "E109", "huge": "E109", "bomb": "E111", "missing": "E109"}


@pytest.mark.slow
def test_unreadable_files(archsim: Any, tmp_path: Path) -> None:
    """Empty, a directory, binary, 50 MB, an alias bomb, missing: each is refused at once with exit code 3."""
    for name, code in _unreadable(tmp_path).items():
        result = archsim("estimate", f"./{name}.yaml", "--hw", "h100", cwd=tmp_path)
        clean(result)
        assert (result.code, result.out) == (3, "")
        assert result.err.startswith(f"error[{code}]: "), name


def test_markup_in_a_name_is_inert(archsim: Any, tmp_path: Path) -> None:
    """Neither rich markup nor escape codes in a name have any effect."""
    name = '"[red]x[/red] \\x1b[31m"'
    (tmp_path / "m.yaml").write_text(GOOD.replace("name: x", f"name: {name}"), "utf-8")
    for args in (["estimate", "./m.yaml", "--hw", "h100"], ["count", "./m.yaml"], ["show", "./m.yaml"]):
        result = archsim(*args, cwd=tmp_path)
        assert result.code == 0
        assert "[red]x[/red] \\x1b[31m" in result.out and "\x1b" not in result.out


USAGE = {
    "no such model": (("estimate", "lama2-70b", "--hw", "h100"), "did you mean `llama2-70b`?"),
    "no such device": (("estimate", "llama2-70b", "--hw", "h100x"), "did you mean"),
    "no such format": (("estimate", "llama2-70b", "--hw", "h100", "--weights", "fp9"), "did you mean `fp8`?"),
    "no such command": (("estmate",), "did you mean `estimate`?"),
    "no such option": (("count", "llama2-70b", "--bach", "1"), "--batch"),
    "no device": (("estimate", "llama2-70b"), "--hw"),
    "no model": (("count",), "MODEL"),
    "a bad number": (("count", "llama2-70b", "--batch", "many"), "whole number"),
    "zero": (("count", "llama2-70b", "--batch", "0"), "at least 1"),
    "a bad choice": (("count", "llama2-70b", "--logits", "some"), "some"),
    "no such part": (("count", "llama2-70b", "--with", "wings"), "vision"),
    "no such engine": (("estimate", "llama2-70b", "--hw", "h100", "--engine", "steam"), "vllm"),
    "an impossible plan": (("estimate", "llama2-70b", "--hw", "h100", "--tp", "3"), "valid degrees"),
    "devices zero": (("estimate", "llama2-70b", "--hw", "h100", "--devices", "0"), "--devices"),
    "a cache format": (("count", "llama2-70b", "--kv", "nf4"), "cache"),
    "an assignment": (("count", "llama2-70b", "--set", "d_model"), "FIELD=VALUE"),
    "no such topic": (("explain", "tpoot"), "did you mean `tpot`?"),
    "no such quantity": (("explain", "llama2-70b", "colour"), "kv_cache"),
    "no such name": (("show", "lama2-70b"), "did you mean `llama2-70b`?"),
    "an empty name": (("show", ""), "empty"),
    "no such schema": (("schema", "poem"), "poem"),
}


@pytest.mark.parametrize("name", USAGE)
def test_usage_error(name: str, archsim: Any) -> None:
    """Exit code 2, `error:` and a hint on stderr, nothing on stdout."""
    args, advice = USAGE[name]
    result = archsim(*args)
    clean(result)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error") and advice in result.err


@pytest.mark.parametrize("name", USAGE)
def test_usage_error_as_json(name: str, archsim: Any) -> None:
    """With `--json` among the arguments, even errors of the command line are objects on stdout."""
    args, _ = USAGE[name]
    result = archsim(*args, "--json")
    data = json.loads(result.out)
    assert (result.code, result.err) == (2, "")
    assert data["schema"] == "archsim.error/1" and data["code"].startswith("E") and data["message"]


def test_undisclosed_model(archsim: Any) -> None:
    """A model that is known by name only is refused with its status, and listed with it."""
    names = json.loads(archsim("list", "models", "--json").out)["entries"]
    without = [entry for entry in names if entry["file"] is None]
    assert without and all(entry["note"] for entry in without)
    result = archsim("count", without[0]["name"])
    assert result.code == 2 and "has no spec" in result.err


def test_nothing_is_large_enough(archsim: Any) -> None:
    """Where no number of devices holds the model the answer is no: exit 1, an object under `--json`."""
    result = archsim("estimate", "llama2-70b", "--hw", "rtx-4090", "--batch", "100000", "--json")
    assert result.code == 1
    assert json.loads(result.out)["code"] == "E130"


def _broken(*_: Any, **__: Any) -> None:
    raise ZeroDivisionError("[bold]boom[/bold]")


def test_internal_error(archsim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect is one message with what to report, exit code 70, and no traceback."""
    monkeypatch.setattr("archsim.api.count", _broken)
    result = archsim("count", "llama2-70b")
    assert (result.code, result.out) == (70, "")
    assert "internal error: ZeroDivisionError: [bold]boom[/bold]" in result.err
    assert "archsim doctor --json" in result.err and "Traceback" not in result.err


def test_traceback_on_demand(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """ARCHSIM_DEBUG=1 adds the traceback."""
    from archsim.cli.main import main

    monkeypatch.setenv("ARCHSIM_DEBUG", "1")
    monkeypatch.setattr("archsim.api.count", _broken)
    assert main(["count", "llama2-70b"]) == 70
    assert "Traceback" in capfd.readouterr().err


def test_interrupt(archsim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with exit code 130 and one word."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("archsim.api.count", interrupted)
    result = archsim("count", "llama2-70b")
    assert result.code == 130 and result.out == "" and "Traceback" not in result.err


def test_end_of_a_file_is_no_interrupt(archsim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that ends too early, as a half-written module does, is a defect and not Ctrl-C."""

    def cut_short(*_: Any, **__: Any) -> None:
        raise EOFError("marshal data too short")

    monkeypatch.setattr("archsim.api.count", cut_short)
    result = archsim("count", "llama2-70b")
    assert result.code == 70 and "marshal data too short" in result.err and "interrupted" not in result.err


@pytest.mark.parametrize("line", [
    "estimate bert-base --hw ,", "fit bert-base --hw ,", "trace bert-base --hw=", "sweep bert-base --hw ,",
    "compare bert-base t5-small --hw ,", f"estimate bert-base --hw h100 --devices {'9' * 400}",
    f"trace bert-base --hw t4 --pp {'9' * 400}",
])  # fmt: skip
def test_no_device_and_more_devices_than_numbers_have_names(line: str, archsim: Any) -> None:
    """An empty name, and a number beyond what a float holds."""
    result = archsim(*line.split())
    clean(result)
    assert (result.code, result.out) == (2, "")
    assert "device name is empty" in result.err or "more than archsim plans for" in result.err


def test_hours_that_cost_nothing(archsim: Any) -> None:
    """Every share of a bill of nothing is nothing."""
    result = archsim("estimate", "gpt2-small", "--hw", "h100", "--price", "0")
    clean(result)
    assert result.code == 0 and "0 % of the bill" in " ".join(result.out.split())


def test_garbage_is_seldom_collected_while_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles are not searched for among the graphs of a command, which takes as long as all else; the caller's own
    setting is back afterwards.
    """
    import gc

    from archsim.cli import main as process

    before, seen = gc.get_threshold(), list[int]()

    def noted(args: list[str]) -> int:
        seen.append(gc.get_threshold()[0])
        return 0

    monkeypatch.setattr(process, "_dispatch", noted)
    assert process.main(["list"]) == 0
    assert seen == [process.UNCOLLECTED]
    assert gc.get_threshold() == before
