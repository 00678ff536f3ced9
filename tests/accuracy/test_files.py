"""Files of measurements are told apart by what is in them, and read without what was measured."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import yaml
from accuracy import tables as t

from archsim.accuracy.files import MEASURED, read_table, tables
from archsim.base.errors import SpecError

ROWS: dict[str, list[dict[str, Any]]] = {
    "kernels": [t.kernel(), t.kernel("moe")],
    "runs": [t.run(), t.run("ttft_ms")],
    "serving": [t.point(), t.point(isl=2048)],
}


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("form", ["csv", "gz", "json", "yaml"])
def test_a_kind_is_told_by_its_columns(kind: str, form: str, tmp_path: Path) -> None:
    """Whatever the file is called and however it is written."""
    table = read_table(t.write(tmp_path / "file.dat", ROWS[kind], form))
    assert (table.kind, len(table), table.ids) == (kind, 2, ["0", "1"])


def test_block_style_yaml_with_shared_fields(tmp_path: Path) -> None:
    """What a run list says above its rows stands for each of them."""
    path = tmp_path / "runs.yaml"
    path.write_text(
        yaml.safe_dump({"device": "L40S", "rows": [{"id": "a", "model": "llama3-8b", "metric": "ttft_ms"}]})
    )
    assert read_table(path).question(0) == {"id": "a", "model": "llama3-8b", "device": "L40S", "metric": "ttft_ms"}


@pytest.mark.parametrize("kind", ROWS)
def test_questions_hold_nothing_measured(kind: str, tmp_path: Path) -> None:
    """No measured column, and no column that nobody knows, reaches a predictor."""
    rows = [{**row, "surplus": "value 1.5", "notes": "measured 80 ms"} for row in ROWS[kind]]
    table = read_table(t.write(tmp_path / "file.csv", rows))
    measured = {name for names in MEASURED[table.kind].values() for name in names}
    assert not {*measured, "surplus", "notes"} & table.questions.keys()
    assert [value for values in table.measured.values() for value in values if value is None] == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "top level|empty"),
        (b"alpha,beta\n1,2\n", "no kind of measurement: alpha, beta"),
        (b"rows:\n- {alpha: 1}\n", "no kind of measurement"),
        (b"rows: 3\n", "known header"),
        (b'{"rows": [1]}', "known header"),
        (b"{not json", "not valid JSON"),
        (b"op,device,m\ngemm,L40S\n", "line 2 has 2 fields"),
        (b"op,device,op\ngemm,L40S,x\n", "occurs twice"),
        (b"\xff\xfe\x00", "UTF-8"),
        (gzip.compress(b"op,device\ngemm,L40S\n", mtime=0)[:20], "gzip"),
        (b"a: [1, 2\n", "YAML"),
    ],
)
def test_a_file_of_nothing_known_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    """With what is wrong, as an invalid input file."""
    path = tmp_path / "file.csv"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=says) as caught:
        read_table(path)
    assert caught.value.exit_code == 3


def test_what_the_nearest_kind_lacks_is_named(tmp_path: Path) -> None:
    """A table that almost is one."""
    path = tmp_path / "file.csv"
    path.write_text("model,device,isl,osl\nllama3-8b,L40S,1,2\n")
    with pytest.raises(SpecError) as caught:
        read_table(path)
    assert caught.value.hints[0] == "for a serving table it lacks `concurrency`"


def test_columns_by_the_names_of_options(tmp_path: Path) -> None:
    """`input_len` is `isl`; where both are there, each is itself."""
    path = tmp_path / "file.csv"
    path.write_text("model,hw,concurrency,input_len,output_len,tpot_ms\nllama3-8b,L40S,8,1024,256,20\n")
    asked = {"model": "llama3-8b", "device": "L40S", "concurrency": "8", "isl": "1024", "osl": "256"}
    assert read_table(path).question(0) == asked


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """By its name."""
    with pytest.raises(SpecError, match="no such file"):
        read_table(tmp_path / "none.csv")


def test_a_folder_is_all_tables_in_it(tmp_path: Path) -> None:
    """Other files there are passed over; a folder without any is refused."""
    with pytest.raises(SpecError, match="no file of measurements"):
        tables(tmp_path)
    (tmp_path / "notes.yaml").write_text("a: 1\n")
    t.write(tmp_path / "a.csv", ROWS["kernels"])
    t.write(tmp_path / "b.yaml", ROWS["runs"], "yaml")
    assert [table.kind for table in tables(tmp_path)] == ["kernels", "runs"]


def test_a_sample_is_the_same_each_time(tmp_path: Path) -> None:
    """Drawn with a fixed seed, in the file's order."""
    table = read_table(t.write(tmp_path / "k.csv", [t.kernel(m=m, time_us=m) for m in range(1, 101)]))
    first, again = table.sample(10), table.sample(10)
    assert first == again
    assert first.ids == sorted(first.ids, key=int)
    assert len(first) == len(set(first.ids)) == 10
    assert first.measured["time_us"] == [float(m) for m in first.questions["m"]]
    assert table.sample(1000) is table
