"""What people type: other spellings, several values, what is not modelled, models of the Hub."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from archsim.render.glossary import ABSENT, SYNONYMS, TERMS
from archsim.spec.catalog import names, split_count

ASKED = ("estimate", "llama2-70b", "--hw")


def suggestion(err: str) -> list[str]:
    """The words of the command line between backticks in a hint, without `archsim`."""
    hints = err.partition("\nhint:")[2]
    line = next(part for part in hints.split("`")[1::2] if part.startswith("archsim ") and "--help" not in part)
    return shlex.split(line)[1:]


# ---------------------------------------------------------------------- devices with their number
@pytest.mark.sampled(4)
@pytest.mark.parametrize("hw", ["8xh100", "h100x8", "8*H100", "8 x h100", "8×h100"])
@pytest.mark.parametrize("flag", ["--hw", "--gpu"])
def test_devices_with_their_number(hw: str, flag: str, archsim: Any) -> None:
    """A number before or behind a device is `--devices`."""
    wanted = archsim(*ASKED, "h100", "--devices", "8", "--json")
    found = archsim("estimate", "llama2-70b", flag, hw, "--json")
    assert (found.code, found.out) == (wanted.code, wanted.out)


@pytest.mark.parametrize(
    ("words", "message", "value"),
    [
        ("simulate llama3.1-8b --hw h100 --find --slo ttft=0.5", "`--find` needs a value: rate, concurrency", "rate"),
        ("estimate llama2-70b --hw --batch 4", "`--hw` needs a value", "h100"),
        ("estimate llama2-70b --hw h100 --weights --batch 4", "`--weights` needs a value", "FMT"),
    ],
)
def test_a_value_that_is_left_out_is_not_the_next_option(words: str, message: str, value: str, archsim: Any) -> None:
    """The message names the option and what it takes; the hint is the same line with a value in its place."""
    answer = archsim(*words.split())
    assert answer.code == 2 and message in answer.err
    line = suggestion(answer.err)
    line.remove(value)
    assert line == words.split()


@pytest.mark.slow
def test_no_device_is_taken_apart() -> None:
    """Every name of the catalog stands for its device, whatever it looks like; mi300x8 is eight of mi300x."""
    for entry in names("hw"):
        for name in (entry.name, *entry.aliases):
            assert split_count(name) == (None, name)
            assert split_count(f"4x{name}") == (4, name)
    assert split_count("mi300x8") == (8, "mi300x")
    assert split_count("2xnothing") == (None, "2xnothing") and split_count("0xh100") == (None, "0xh100")


def test_numbers_that_disagree(archsim: Any) -> None:
    """Two numbers of devices are refused; the same number twice is one."""
    assert archsim(*ASKED, "8xh100", "--devices", "4").code == 2
    assert archsim("fit", "llama2-70b", "--hw", "2xh100,4xa100").code == 2
    assert archsim("fit", "llama2-70b", "--hw", "2xh100,2xa100").code == 0
    assert archsim(*ASKED, "8xh100", "--devices", "8", "-q").code == 0


# ---------------------------------------------------------------------- pointers to what does it
@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("estimate llama2-7b --hw h100 --batch 1,2,4 -v", "sweep"),
        ("estimate llama2-7b --hw h100 --batch 1-8*2 --concurrency 4", "sweep"),
        ("estimate llama2-7b --hw h100,a100 --batch 2", "compare"),
        ("estimate llama2-7b gpt2-small --hw h100", "compare"),
        ("estimate llama2-7b --hw h100 --weights fp8,int4", None),
        ("estimate llama2-7b --hw h100 --engine vllm,sglang", "sweep"),
        ("fit llama2-7b --hw h100 --input-len 1k,2k", "sweep"),
        ("count llama2-7b gpt2-small", "compare"),
        ("count llama2-7b --batch 1,2", "sweep"),
    ],
)
def test_several_where_one_is_wanted(line: str, command: str | None, archsim: Any) -> None:
    """The error holds the whole command line that takes several, and it is answered."""
    result = archsim(*line.split())
    assert result.code == 2
    words = suggestion(result.err)
    assert command in (None, words[0])
    assert archsim(*words).code == 0


def test_several_files_where_one_or_a_folder_is_taken(archsim: Any) -> None:
    """As a shell writes them for `runs/*.yaml`."""
    result = archsim(
        "validate", "reports/runs/autoawq.yaml", "reports/runs/exllamav2.yaml", "reports/runs/tinychat.yaml"
    )
    assert result.code == 2 and "takes one file or folder, not 3" in result.err
    assert "`archsim validate reports/runs`" in result.err


def test_a_missing_device_shows_an_example(archsim: Any) -> None:
    """The example repeats what was typed, and is answered."""
    result = archsim("estimate", "llama2-7b", "--batch", "2")
    assert result.code == 2
    assert suggestion(result.err) == ["estimate", "llama2-7b", "--batch", "2", "--hw", "h100"]
    assert archsim("estimate", "llama2-7b", "--json").out.startswith('{\n  "schema": "archsim.error/1"')


@pytest.mark.parametrize(
    ("asked", "least"),
    [
        ("24gb", 24e9),
        ("24 GB", 24e9),
        ("24GiB", 24 * 2**30),
        ("0.5tb", 0.5e12),
        ("2x80gb", 80e9),
        ("0.1TiB", 0.1 * 2**40),
    ],
)
def test_a_memory_size_where_a_device_is_wanted_lists_the_devices_of_that_size(
    asked: str, least: float, archsim: Any
) -> None:
    """A size names no device: the hint is a command that lists those with it (a card sold with 24 GiB may have a
    little less), and no device that is spelled alike.
    """
    refused = archsim("fit", "qwen3-32b", "--hw", asked)
    assert refused.code == 2
    assert "did you mean" not in refused.err
    line = suggestion(refused.err)
    assert line[:3] == ["list", "hw", "--where"]
    listed = json.loads(archsim(*line, "--json").out)["entries"]
    sizes = [entry["memory_bytes"] for entry in listed]
    assert sizes
    assert sizes == sorted(sizes)
    every = [entry["memory_bytes"] for entry in json.loads(archsim("list", "hw", "--json").out)["entries"]]
    assert sizes[0] == min(size for size in every if size is not None and size >= 0.99 * least)


def test_help_and_version_as_others_spell_them(archsim: Any) -> None:
    """`archsim help COMMAND` and `-V`."""
    assert archsim("help", "estimate").out == archsim("estimate", "--help").out
    assert archsim("help").out == archsim("--help").out
    assert archsim("-V").out == archsim("--version").out


# ---------------------------------------------------------------------- not modelled
@pytest.mark.parametrize(
    ("line", "topic"),
    [
        ("estimate llama2-7b --hw h100 --enable-prefix-caching", "prefix cache"),
        ("estimate llama2-7b --hw h100 --speculative-config x", "speculative decoding"),
    ],
)
def test_what_is_not_modelled_says_what_is_nearest(line: str, topic: str, archsim: Any) -> None:
    """A command or option that would need it names the topic, which `explain` knows."""
    result = archsim(*line.split())
    assert result.code == 2 and topic in result.err
    words = suggestion(result.err)
    assert words == ["explain", *topic.split()]
    said = " ".join(archsim(*words).out.split())
    assert "The nearest" in said or "`archsim simulate" in said


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("estimate llama2-7b --hw h100 --context 4096", "--input-len"),
        ("fit llama2-7b --hw h100 --seq-len 4096", "--context"),
        ("estimate llama2-7b --hw h100 --dtype fp8", "--weights"),
        ("estimate llama2-7b --hw h100 --users 8", "--concurrency"),
        ("simulate llama2-7b --hw h100 --qps 8", "--rate"),
        ("compare llama2-7b,llama2-13b --hw h100 --html x.html", "--format html"),
        ("estimate llama2-7b --hw h100 --csv", "--format csv"),
        ("diff llama2-7b llama2-13b --markdown", "--format md"),
        ("sweep llama2-7b --hw h100 --output x.csv", "--out"),
    ],
)
def test_options_of_other_tools_name_ours(line: str, ours: str, archsim: Any) -> None:
    """An option that another tool has under another name is pointed to."""
    result = archsim(*line.split())
    assert result.code == 2 and f"`{ours}` is what this command has for it" in result.err
    assert "Possible options" not in result.err


def test_pages_that_a_command_does_not_make_are_those_of_report(archsim: Any) -> None:
    """`estimate` has no HTML; the hint says what has."""
    result = archsim("estimate", "llama2-7b", "--hw", "h100", "--html", "x.html")
    assert result.code == 2 and "`archsim report MODEL --hw DEVICE --out page.html` writes a page" in result.err


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("sweep llava-1.5-7b --hw h100 --image 640x480", "counts as tokens of the prompt"),
        ("sweep whisper-large-v3 --hw h100 --audio 30", "counts as tokens of the prompt"),
        ("simulate t5-large --hw h100 --rate 2 --source-len 512", "not served in continuous batches"),
    ],
)
def test_what_only_estimate_takes_is_said_elsewhere(line: str, hint: str, archsim: Any) -> None:
    """Neither a word of the options that are spelt alike nor a topic is taken for what was asked."""
    result = archsim(*line.split())
    assert result.code == 2 and "no such option" in result.err
    assert hint in " ".join(result.err.split()) and "explain" not in result.err


def test_absent_topics_are_not_terms() -> None:
    """Nothing is both explained and absent, and every other word for a topic leads to one."""
    assert not set(ABSENT) & set(TERMS)
    assert all(topic in TERMS or topic in ABSENT for topic in SYNONYMS.values())
    assert all("archsim" in text or "never" in text for text in ABSENT.values())


# ---------------------------------------------------------------------- the Hub
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 256, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


class Hub(BaseHTTPRequestHandler):
    """A Hub with one repository, which notes what it is asked for."""

    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        body = json.dumps(CONFIG).encode()
        if self.path != "/some-org/New-Model-1B/resolve/main/config.json":
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        for name, value in (("ETag", '"abc"'), ("X-Repo-Commit", "0" * 40), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which huggingface_hub asks a server on this machine, with an empty cache."""
    pytest.importorskip("huggingface_hub")
    Hub.asked = []
    server = HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = str(tmp_path / "hf")
    yield {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": home, "NO_PROXY": "127.0.0.1",
        "HF_HUB_CACHE": f"{home}/hub", "HF_HUB_OFFLINE": "0",
    }  # fmt: skip
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_hub_is_never_asked_unbidden(hub: dict[str, str], archsim_process: Any) -> None:
    """Without `--hub` an unknown name is an error that says what opens it, and nothing is sent."""
    result = archsim_process(["count", "some-org/New-Model-1B"], env=hub)
    assert result.code == 2 and not Hub.asked
    assert "hf download some-org/New-Model-1B config.json" in result.err and "--hub" in result.err


@pytest.mark.slow
def test_hub_gives_one_file(hub: dict[str, str], archsim_process: Any) -> None:
    """With `--hub` one file is fetched, once; the model is called as its repository."""
    for _ in range(2):
        result = archsim_process(["count", "some-org/New-Model-1B", "--hub", "--json"], env=hub)
        assert result.code == 0, result.err
        assert json.loads(result.out)["model"]["name"].lower() == "new-model-1b"
    assert Hub.asked == ["/some-org/New-Model-1B/resolve/main/config.json"]
    known = archsim_process(["count", "meta-llama/Llama-2-7b-hf", "--hub", "-q"], env=hub)
    assert known.code == 0 and len(Hub.asked) == 1


@pytest.mark.slow
def test_hub_without_the_repository(hub: dict[str, str], archsim_process: Any) -> None:
    """A name that the Hub does not know is one clear error."""
    result = archsim_process(["count", "some-org/Nothing", "--hub"], env=hub)
    assert result.code == 2 and "cannot get config.json" in result.err and "Traceback" not in result.err


def test_hub_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, archsim: Any) -> None:
    """It is said what to install."""
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    result = archsim("count", "some-org/New-Model-1B", "--hub")
    assert result.code == 2 and "pip install huggingface_hub" in result.err


def test_a_bare_answer_of_a_text_part_says_so(archsim: Any) -> None:
    """With `-q` the number alone goes to stdout; what it leaves out is said on stderr."""
    for line in ("count", "estimate --hw h100", "fit --hw h100", "train --hw h100 --devices 8"):
        command, *options = line.split()
        result = archsim(command, "Qwen2.5-VL-7B-Instruct", *options, "-q")
        assert result.err == "note: Qwen2.5-VL-7B-Instruct is counted as qwen2.5-7b, without its vision tower\n", line
        assert archsim(command, "qwen2.5-7b", *options, "-q").err == ""


def test_a_bare_answer_in_another_format_says_so(archsim: Any) -> None:
    """The experts' format of a model without experts; where it has some, nothing is to be said."""
    for command in ("estimate", "fit"):
        result = archsim(command, "llama3-8b", "--hw", "h100", "--weights", "mxfp4", "-q")
        assert result.code == 0 and "mxfp4_linear, for all linear weights, is used" in result.err, command
        assert archsim(command, "gpt-oss-20b", "--hw", "h100", "--weights", "mxfp4", "-q").err == "", command


def test_commands_as_other_tools_call_them(archsim: Any) -> None:
    """Each is answered with the one of ours, which exists and is not spelt so by ourselves."""
    from archsim.cli.app import COMMANDS
    from archsim.cli.spellings import COMMANDS_MEANT

    assert set(COMMANDS_MEANT.values()) <= set(COMMANDS) and not set(COMMANDS_MEANT) & set(COMMANDS)
    found = archsim("serve", "deepseek-v3", "--hw", "h200")
    assert found.code == 2 and "`archsim simulate` answers that" in found.err and "survey" not in found.err
    assert "did you mean `sweep`" in archsim("sweeep").err
