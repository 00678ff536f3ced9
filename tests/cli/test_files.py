"""Files on the command line: nothing is lost or half written, and nothing but regular files is read or replaced."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from bounded import small_files

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

WRITERS = {
    "sweep --out": "sweep gpt2-small --hw t4 --batch 1,2 --out FILE.csv",
    "sweep --out json": "sweep gpt2-small --hw t4 --batch 1,2 --out FILE.json",
    "sweep --out parquet": "sweep gpt2-small --hw t4 --batch 1,2 --out FILE.parquet",
    "sweep --plot": "sweep gpt2-small --hw t4 --batch 1,2 --plot FILE.html",
    "trace --out": "trace gpt2-small --hw t4 --out FILE.json",
    "report --out": "report gpt2-small --hw t4 --light -q --out FILE.html",
    "import -o": "import tests/importers/configs/qwen3-0.6b.json -o FILE.yaml",
    "validate --html": "validate TABLE -q --html FILE.html",
    "validate --write-report": "validate TABLE -q --write-report FILE.md",
    "survey --html": "survey -q --html FILE.html",
    "claims --html": "claims --id C001 -q --html FILE.html",
    "claims --write-report": "claims --id C001 -q --write-report FILE.md",
    "measure --plan": "measure --suite probe --size small --hw t4 --plan FILE.csv",
    "schema --write": "schema --write FOLDER",
    "calibrate --out": "calibrate --from TABLE --out FOLDER",
}
"""Option -> a command line that writes to it: FILE or files of FOLDER; TABLE is a kernel table."""

TABLE = "op,device,dtype,engine,m,n,k,time_us\n" + "".join(
    f"gemm,t4,fp16,mine 1.0,{m},{n},{k},{10 + 2e-3 * (m * n + m * k + n * k) / 320:.3f}\n"
    for m in (1, 16, 256, 2048) for n in (512, 1024, 4096) for k in (512, 1024, 4096)
)  # fmt: skip


@pytest.fixture
def command(tmp_path: Path) -> Any:
    """The words of a command line with the folder for its files in their places."""
    (tmp_path / "table.csv").write_text(TABLE)
    out = tmp_path / "out"
    out.mkdir()

    def words(name: str) -> list[str]:
        places = {"TABLE": str(tmp_path / "table.csv"), "FOLDER": str(out)}
        return [places.get(word, word.replace("FILE", str(out / "file"))) for word in WRITERS[name].split()]

    return words


def files(folder: Path) -> dict[Path, bytes]:
    """Every regular file below a folder."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", WRITERS)
def test_what_exists_is_kept(name: str, command: Any, archsim: Any, tmp_path: Path) -> None:
    """Without --force nothing changes; with it the content does, and the mode stays."""
    if "parquet" in name:
        pytest.importorskip("pyarrow")
    first = archsim(*command(name))
    written = files(tmp_path / "out")
    assert first.code in (0, 1) and written, first.err
    for path in written:
        path.write_text("mine")
        path.chmod(0o604)
    again = archsim(*command(name))
    assert (again.code, set(files(tmp_path / "out").values())) == (2, {b"mine"}), again.err
    assert "--force" in again.err and "error[E140]" in again.err
    forced = archsim(*command(name), "--force")
    assert forced.code in (0, 1), forced.err
    assert files(tmp_path / "out") == written
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o604}


@pytest.mark.parametrize("name", WRITERS)
def test_a_pipe_is_never_replaced(name: str, command: Any, archsim: Any, tmp_path: Path) -> None:
    """Nor opened, whatever was asked for."""
    if "parquet" in name:
        pytest.importorskip("pyarrow")
    archsim(*command(name))
    written = list(files(tmp_path / "out"))
    for path in written:
        path.unlink()
        os.mkfifo(path)
    for more in ((), ("--force",)):
        result = archsim(*command(name), *more)
        assert result.code == 2 and "named pipe" in result.err, result.err
    assert all(stat.S_ISFIFO(path.lstat().st_mode) for path in written)
    assert not files(tmp_path / "out")


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_nothing(name: str, command: Any, archsim: Any, tmp_path: Path) -> None:
    """74, one error, and neither an empty nor a half file."""
    if "parquet" in name:
        pytest.importorskip("pyarrow")
    with small_files(100):
        result = archsim(*command(name))
    assert result.code == 74, result.err
    assert result.err.count("error[E141]") == 1 and "Traceback" not in result.err
    assert not files(tmp_path / "out")


def test_validate_writes_no_file_that_nobody_named(archsim_process: Any, tmp_path: Path) -> None:
    """Also in a folder that has an accuracy page."""
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "accuracy.md").write_text("mine")
    result = archsim_process(["validate", "-q"], cwd=tmp_path)
    assert result.code == 0, result.err
    assert files(tmp_path) == {tmp_path / "reports" / "accuracy.md": b"mine"}


def test_of_two_sweeps_to_one_file_the_second_is_refused(archsim: Any, tmp_path: Path) -> None:
    """While the first one writes; its rows are untouched, and so is a file that is called .part."""
    path, theirs = tmp_path / "out.csv", tmp_path / "out.csv.part"
    theirs.write_text("mine")
    words = ["sweep", "gpt2-small", "--hw", "t4", "--batch", "1-4000", "--input-len", "1-900+3", "--out", str(path)]
    first = subprocess.Popen(
        [sys.executable, "-m", "archsim", *words], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        while not any(part.stat().st_size for part in tmp_path.glob(".*.part")):
            assert first.poll() is None
            time.sleep(0.02)
        result = archsim(*words, "--force")
        assert result.code == 2 and "another process is writing" in result.err
    finally:
        first.terminate()
        assert first.wait(60) == 128 + 15
    assert files(tmp_path) == {theirs: b"mine"}


READERS = {
    "model": "count FILE.yaml",
    "config": "count FILE.json",
    "gguf": "count FILE.gguf",
    "safetensors": "count FILE.safetensors",
    "--hw": "estimate gpt2-small --hw FILE.yaml",
    "show": "show FILE.yaml",
    "import": "import FILE.json",
    "validate": "validate FILE.csv",
    "calibrate": "calibrate --from FILE.csv --dry-run",
}


@pytest.mark.parametrize("kind", ["sparse", "pipe", "zeros"])
@pytest.mark.parametrize("name", READERS)
def test_files_are_checked_before_they_are_read(name: str, kind: str, archsim: Any, tmp_path: Path) -> None:
    """10 GB of nothing, a pipe that nobody writes to, and bytes that are no text: one error each, in a few lines."""
    words = [word.replace("FILE", str(tmp_path / "file")) for word in READERS[name].split()]
    (place,) = (Path(word) for word in words if str(tmp_path) in word)
    if kind == "pipe":
        os.mkfifo(place)
    else:
        with place.open("wb") as file:
            file.truncate(10 * 2**30 if kind == "sparse" else 5000)
    if name == "safetensors":
        (tmp_path / "config.json").write_text((ROOT / "tests/importers/configs/qwen3-0.6b.json").read_text())
    result = archsim(*words)
    assert result.code == 3 and result.err.startswith("error[E1"), result.err
    assert len(result.err.splitlines()) < 10 and "\0" not in result.err


def test_measure_loses_no_file_of_others(archsim: Any, tmp_path: Path) -> None:
    """A table that it has not written is left alone, and a device file kept under another name."""
    pytest.importorskip("torch")
    for name, code in (("kernels.csv", 2), ("device.json", 0)):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text("mine, without an end")
        result = archsim("measure", "--device", "cpu", "--suite", "probe", "--budget", "1s", "--out", str(folder), "-q")
        assert result.code == code, result.err
        assert b"mine, without an end" in files(folder).values()
