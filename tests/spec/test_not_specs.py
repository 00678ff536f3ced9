"""Files that are no specs: said to be none, and nothing of what stands in them is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SECRET = "hunter2"
FILES = {
    "passwd": f"root:x:0:0:{SECRET}:/root:/bin/bash\ndaemon:x:1:1::/:/x\n",
    "passwd.yaml": f"root:x:0:0:{SECRET}:/root:/bin/bash\ndaemon:x:1:1::/:/x\n",
    "secret.yaml": f"apiVersion: v1\ndata:\n  password: {SECRET}\n",
    "broken.yaml": f"password: [{SECRET}\n",
    "twice.yaml": f"{SECRET}: 1\n{SECRET}: 2\n",
    "list.yaml": f"- {SECRET}\n",
    "deep.yaml": "[" * 100 + SECRET + "]" * 100,
    "key.json": f'{{"private_key": "{SECRET}"}}',
    "config.json": f'{{"model_type": "llama", "hidden_size": 64, "{SECRET}": 1}}',
    "bad.json": f'{{"model_type": "{SECRET}',
}


@pytest.mark.parametrize("name", FILES)
def test_extends_reads_only_specs(name: str, archsim: Any, tmp_path: Path) -> None:
    """In YAML, with a field of one at least."""
    (tmp_path / name).write_text(FILES[name])
    (tmp_path / "m.yaml").write_text(f"name: x\nextends: ./{name}\n")
    result = archsim("count", "m.yaml", cwd=tmp_path)
    assert result.code == 3, result.err
    assert SECRET not in result.err + result.out
    assert len(result.err.splitlines()) < 10


@pytest.mark.parametrize("name", [name for name in FILES if name != "config.json"])
def test_no_line_of_another_file_is_shown(name: str, archsim: Any, tmp_path: Path) -> None:
    """Where it is given as the model or the device."""
    (tmp_path / name).write_text(FILES[name])
    for words in (("count", f"./{name}"), ("estimate", "gpt2-small", "--hw", f"./{name}")):
        result = archsim(*words, cwd=tmp_path)
        assert result.code == 3, result.err
        assert SECRET not in result.err + result.out


def test_a_misspelt_spec_is_still_shown(archsim: Any, tmp_path: Path) -> None:
    """Its frame helps."""
    (tmp_path / "m.yaml").write_text("name: x\nd_modell: 64\n")
    result = archsim("count", "m.yaml", cwd=tmp_path)
    assert result.code == 3 and "1 | name: x" in result.err, result.err


def test_extends_does_not_read_standard_input(archsim: Any, tmp_path: Path) -> None:
    """Which is the model's alone."""
    (tmp_path / "m.yaml").write_text('name: x\nextends: "-"\n')
    assert archsim("count", "m.yaml", cwd=tmp_path).code == 3
