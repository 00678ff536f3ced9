"""What scripts rely on: JSON keys and types, exit codes, the separation of stdout and stderr."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import archsim as package
from archsim.render.pages.list import entries

ROOT = Path(__file__).resolve().parents[2]
ESTIMATE = ("estimate", "llama2-70b", "--hw", "h100")

PER_DEVICE = ("capacity", "usable", "weights", "kv_cache", "activation", "runtime", "free")
PHASE = ("ideal_s", "expected_s", "low_s", "high_s", "flops", "bytes", "comm_bytes")
RATES = ("tokens_per_s_per_user", "tokens_per_s", "tokens_per_s_per_device")
FLOPS = ("total", "matmul", "attention", "conv", "elementwise")
NUMBERS = {
    "estimate": [
        *("params.total", "params.active", "hardware.devices", "plan.tp", "plan.pp", "plan.ep", "plan.dp"),
        *("workload.batch", "workload.input_len", "workload.output_len"),
        *(f"memory.per_device.{name}_bytes" for name in PER_DEVICE),
        *(f"phases.{phase}.{name}" for phase in ("prefill", "decode") for name in PHASE),
        *(f"metrics.{name}" for name in ("ttft_s", "tpot_s", "e2e_s", *RATES)),
    ],
    "count": [
        *("params.total", "params.active", "params.embedding", "params.non_embedding", "weights.bytes"),
        *("kv_cache.bytes_per_token", "kv_cache.bytes", "kv_cache.state_bytes", "flops.mac"),
        *(f"flops.{convention}.{name}" for convention in ("masked", "full") for name in FLOPS),
    ],
    "show": [
        *("peaks_flops.bf16", "peaks_flops.fp8", "memory_bytes", "bandwidth_bytes_per_s"),
        *("link_bytes_per_s_per_direction", "max_domain", "tdp_w"),
    ],
}
COMMANDS = {"estimate": ESTIMATE, "count": ("count", "llama2-70b"), "show": ("show", "h100")}


def at(data: Any, path: str) -> Any:
    """The value at a dotted path."""
    for key in path.split("."):
        data = data[key]
    return data


@pytest.mark.parametrize("name", COMMANDS)
def test_json_has_the_contract_s_numbers(name: str, archsim: Any) -> None:
    """Every key of the contract is there and is a number, not text."""
    result = archsim(*COMMANDS[name], "--json")
    assert result.code == 0
    data = json.loads(result.out)
    for path in NUMBERS[name]:
        value = at(data, path)
        assert isinstance(value, (int, float)) and not isinstance(value, bool), path


def test_estimate_json_is_the_library_s(archsim: Any) -> None:
    """`--json` equals `to_dict` of the Python interface."""
    data = json.loads(archsim(*ESTIMATE, "--json").out)
    assert data == json.loads(json.dumps(package.estimate("llama2-70b", "h100").to_dict()))
    assert data["schema"] == "archsim.estimate/1"
    assert (data["hardware"]["name"], data["plan"]["engine"]) == ("h100-sxm", "generic")


def test_count_json_is_the_library_s(archsim: Any) -> None:
    """`count --json` equals `to_dict`, and the published count is met."""
    data = json.loads(archsim("count", "llama2-70b", "--json").out)
    assert data == json.loads(json.dumps(package.count("llama2-70b").to_dict()))
    assert (data["schema"], data["params"]["total"]) == ("archsim.count/1", 68976648192)


def test_encoder_has_no_decode(archsim: Any) -> None:
    """What an encoder lacks is null, never NaN or zero."""
    data = json.loads(archsim("estimate", "bert-base", "--hw", "h100", "--input-len", "512", "--json").out)
    assert data["phases"]["decode"] is None
    assert data["metrics"]["tpot_s"] is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", ["models", "hw", "formats", "engines", "runs"])
def test_list_json(what: str, archsim: Any) -> None:
    """Entries have name, aliases, status and file; files exist."""
    data = json.loads(archsim("list", what, "--json").out)
    assert (data["schema"], data["kind"]) == ("archsim.list/1", what)
    for entry in data["entries"]:
        assert {"name", "aliases", "status", "file"} <= entry.keys()
        assert entry["file"] is None or Path(ROOT / entry["file"]).is_file()
    assert what == "runs" or data["entries"]


def test_list_filters(archsim: Any) -> None:
    """`--grep` keeps what has the text in a name, `-q` prints names alone."""
    names = archsim("list", "hw", "--grep", "h100-sxm", "-q").out.split()
    assert "h100-sxm" in names


def test_show_json_of_each_kind(archsim: Any) -> None:
    """Models, devices and formats are found, and a model's document has its sources."""
    model = json.loads(archsim("show", "llama2-70b", "--json").out)
    assert model["schema"] == "archsim.model/1"
    assert model["document"]["d_model"] == 8192 and model["sources"] and model["file"]
    assert json.loads(archsim("show", "h100", "--json").out)["schema"] == "archsim.hardware/1"
    assert json.loads(archsim("show", "int4", "--json").out)["document"]["bytes"] == 66


def test_show_json_of_an_engine(archsim: Any) -> None:
    """Its rules at the version asked for, with their sources; any spelling will do."""
    new, old = (json.loads(archsim("show", name, "--json").out) for name in ("vllm", "vLLM@0.11"))
    assert new["schema"] == "archsim.engine/2" and new["sources"]["planner"]["url"] and new["file"]
    assert (new["memory"]["share"]["default"], old["memory"]["share"]["default"]) == (0.92, 0.9)
    assert json.loads(archsim("show", "ollama", "--json").out)["name"] == "llamacpp"
    page = archsim("show", "sglang").out
    assert "a share of the total" in page and "https://" in page and "0.5" in page


def test_show_raw_is_the_file(archsim: Any) -> None:
    """`--raw` prints the YAML as it is."""
    result = archsim("show", "llama2-70b", "--raw")
    assert result.out == (ROOT / "specs/models/llama2-70b.yaml").read_text("utf-8")


def test_schema_and_doctor_json(archsim: Any) -> None:
    """`schema` prints a JSON Schema, `doctor --json` an object with versions, data and a clean catalog."""
    assert json.loads(archsim("schema", "format").out)["$schema"].startswith("https://json-schema.org")
    data = json.loads(archsim("doctor", "--json").out)
    assert data["schema"] == "archsim.doctor/1"
    assert data["lint"]["problems"] == [] and data["data"]


# ---------------------------------------------------------------------- does not fit
def test_too_few_devices(archsim: Any) -> None:
    """An explicit count that is too small: the answer on stdout, the reason on stderr, exit code 1."""
    result = archsim(*ESTIMATE, "--devices", "1")
    assert result.code == 1
    assert "does not fit" in result.out and result.out.startswith("llama2-70b on ")
    assert result.err.startswith("error: llama2-70b in bf16 does not fit on 1 × ")
    assert "needed" in result.err and "short by" in result.err
    assert "--devices 2" in result.err and "--weights fp8" in result.err and "--weights int4" in result.err


def test_too_few_devices_as_json(archsim: Any) -> None:
    """Under `--json` stdout is the estimate with fits = false, and exit code 1."""
    result = archsim(*ESTIMATE, "--devices", "1", "--json")
    data = json.loads(result.out)
    assert result.code == 1
    assert data["schema"] == "archsim.estimate/1" and data["memory"]["fits"] is False
    assert data["memory"]["per_device"]["free_bytes"] < 0


# ---------------------------------------------------------------------- streams and layouts
def test_warnings_do_not_disturb_json(archsim: Any) -> None:
    """Warnings go to stderr, in every layout."""
    result = archsim("estimate", "llama2-70b", "--hw", "h100", "--input-len", "8192", "--json")
    data = json.loads(result.out)
    assert data["warnings"] and data["warning_codes"] == ["W01"]
    assert result.err.startswith("warning[W01]: ")


@pytest.mark.parametrize("args", [ESTIMATE, ("count", "llama2-70b"), ("show", "h100"), ("list", "formats")])
@pytest.mark.parametrize("layout", ["md", "csv", "table", "json"])
def test_every_layout(args: tuple[str, ...], layout: str, archsim: Any) -> None:
    """Each layout is written, without colour, and CSV is rectangular."""
    result = archsim(*args, "--format", layout)
    assert result.code == 0 and result.out and "\x1b" not in result.out
    if layout == "csv":
        rows = list(csv.reader(io.StringIO(result.out)))
        assert len({len(row) for row in rows}) == 1 and len(rows) >= 2


@pytest.mark.parametrize("what", ["op", "block", "phase", "kind"])
def test_breakdown(what: str, archsim: Any) -> None:
    """`--by` sums to the phases, in JSON and as a table."""
    data = json.loads(archsim(*ESTIMATE, "--by", what, "--json").out)
    for phase, groups in data["by"].items():
        assert sum(g["expected_s"] for g in groups) == pytest.approx(data["phases"][phase]["expected_s"])
    assert "prefill" in archsim(*ESTIMATE, "--by", what).out


def test_verbose_and_quiet(archsim: Any) -> None:
    """`-v` lists every assumption, `-q` is one line."""
    notes = package.estimate("llama2-70b", "h100").assumptions
    assert f"-v lists {len(notes)}" in archsim(*ESTIMATE).out
    listed = archsim(*ESTIMATE, "-v").out
    assert all(f"\n  {note.code}  " in listed for note in notes)
    assert archsim(*ESTIMATE, "-q").out.count("\n") == 1
    assert archsim("count", "llama2-70b", "-q").out == "68976648192\n"


@pytest.mark.parametrize(
    "args", [ESTIMATE, ("count", "deepseek-v3"), ("show", "llama2-70b"), ("explain", "llama2-70b", "params")]
)
def test_at_most_100_columns(args: tuple[str, ...], archsim: Any) -> None:
    """No line of a page is longer than 100 columns, but for addresses that cannot be broken."""
    for line in archsim(*args).out.splitlines():
        assert len(line) <= 100 or "://" in line


def on_terminal(args: tuple[str, ...], **env: str) -> str:
    """What a command writes when stdout is a terminal."""
    master, slave = pty.openpty()
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **env}
    for name in {"NO_COLOR", "COLUMNS"} - set(env):
        variables.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-m", "archsim", *args], stdout=slave, stderr=subprocess.DEVNULL, cwd=ROOT, env=variables
    )
    os.close(slave)
    text = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:
            break
        if not chunk:
            break
        text += chunk
    process.wait()
    os.close(master)
    return text.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    """Without colour codes."""
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.slow
def test_content_does_not_depend_on_the_terminal(archsim: Any) -> None:
    """On a terminal there is colour, in lines of its width, and the same text; NO_COLOR, TERM=dumb and --no-color end
    colour.
    """
    whole, piped = archsim(*ESTIMATE).out, archsim(*ESTIMATE, "--width", "80").out
    assert {*whole.split()} - {"#"} <= {*piped.split()}
    coloured = on_terminal(ESTIMATE)
    assert "\x1b[" in coloured and plain(coloured) == piped
    assert on_terminal(ESTIMATE, NO_COLOR="1") == piped
    assert on_terminal(ESTIMATE, TERM="dumb") == piped
    assert on_terminal((*ESTIMATE, "--no-color")) == piped


def test_closed_pipe_is_quiet() -> None:
    """A reader that goes away ends the command with 141, and nothing is said."""
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "archsim", "list", "hw"], stdout=write, stderr=subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60,
    )  # fmt: skip
    os.close(write)
    assert (process.returncode, process.stderr) == (141, b"")


@pytest.mark.slow
def test_ascii_terminal(archsim_process: Callable[..., Any]) -> None:
    """An encoding without the signs gets replacements instead of a traceback."""
    result = archsim_process(ESTIMATE, env={"PYTHONIOENCODING": "ascii"})
    assert result.code == 0 and "Speed" in result.out


HEAVY = "rich torch numpy scipy plotly pandas transformers safetensors jinja2"
SLOW_STDLIB = "asyncio concurrent multiprocessing ctypes logging ssl http unittest pydoc sqlite3 xml"
OTHER_ANSWERS = (
    "archsim.backend archsim.importers.hf archsim.render.pages.diagnosis "
    "archsim.render.pages.explain archsim.explanation archsim.spec.findings archsim.spec.override "
    "archsim.spec.schemas archsim.spec.symbolic archsim.blocks.mamba archsim.blocks.linear_attention"
)
NEVER = f"{HEAVY} {SLOW_STDLIB} {OTHER_ANSWERS}"
DEVICES = "archsim.spec.hardware archsim.spec.hardware_schema archsim.predict.estimate archsim.graph.passes.shard"
NOT_IMPORTED = {
    ESTIMATE: f"{NEVER} archsim.blocks.moe archsim.blocks.mla archsim.render.pages.breakdown archsim.render.flat",
    (*ESTIMATE, "--json"): f"{NEVER} archsim.blocks.moe archsim.blocks.mla archsim.render.terminal",
    ("count", "llama2-70b"): f"{NEVER} {DEVICES} archsim.blocks.moe archsim.blocks.mla",
    ("list", "models"): f"{NEVER} {DEVICES} archsim.spec.model archsim.spec.loader archsim.blocks",
    ("show", "h100"): f"{NEVER} archsim.spec.model archsim.predict.estimate",
    ("--help",): (
        f"{NEVER} {DEVICES} archsim.spec archsim.predict archsim.timing archsim.render "
        "pydantic yaml importlib.metadata email"
    ),
}
"""Command line -> modules that it must not import when its output is piped, sub-modules included."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("args", NOT_IMPORTED, ids=" ".join)
def test_unneeded_modules_are_not_imported(args: tuple[str, ...]) -> None:
    """Cold start: heavy packages, slow parts of the standard library and the parts of other answers stay out."""
    for kind in ("models", "hw", "formats", "engines"):
        entries(kind)  # a clone's first use makes the indexes and counts
    code = (
        "import sys; from archsim.cli.main import main; code = main(sys.argv[1:]);"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    imported = done.stderr.split()
    unwanted = NOT_IMPORTED[args].split()
    assert not [m for m in imported for name in unwanted if m == name or m.startswith(name + ".")]


def test_importing_specs_imports_no_pydantic() -> None:
    """Cold start: pydantic's classes of model, device and format documents are made when one is validated."""
    code = (
        "import sys, archsim.spec.engine, archsim.spec.format, archsim.spec.hardware, archsim.spec.model\n"
        "from archsim.blocks import dispatch\n"
        "for family, kinds in dispatch.KINDS.items():\n  for kind in kinds: dispatch.load_kind(family, kind)\n"
        "print(*(m for m in sys.modules if m.startswith('pydantic')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_importance_matrix_is_accepted(archsim: Any) -> None:
    """`--imatrix` and `--no-imatrix` change nothing where the format is not a gguf file type."""
    assert archsim("count", "llama2-70b", "--no-imatrix").out == archsim("count", "llama2-70b", "--imatrix").out


def test_list_spells_aliases_as_the_files_do(archsim: Any) -> None:
    """Aliases are listed as written, Hugging Face ids with their organisation."""
    entries = json.loads(archsim("list", "models", "--grep", "llama2-70b", "--json").out)["entries"]
    assert "meta-llama/Llama-2-70b-hf" in entries[0]["aliases"]


def test_show_a_system(archsim: Any) -> None:
    """A machine of several devices is shown with its fabric."""
    assert "8 × h100-sxm" in archsim("show", "dgx-h100").out
    assert json.loads(archsim("show", "dgx-h100", "--json").out)["schema"] == "archsim.system/1"


@pytest.mark.slow
def test_a_second_estimate_imports_no_validator() -> None:
    """Documents of the catalog are kept: a command that starts again reads plain data."""
    code = (
        "import sys; from archsim.cli.main import main; code = main(['estimate', 'llama2-70b', '--hw', 'h100']);"
        "assert not [m for m in sys.modules if m.startswith(('pydantic', 'yaml'))]; raise SystemExit(code)"
    )
    words = [sys.executable, "-m", "archsim", "estimate", "llama2-70b", "--hw", "h100"]
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(words, cwd=ROOT, env=settings, check=True, capture_output=True, timeout=120)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=settings, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
