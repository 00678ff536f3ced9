"""Models of many distinct layers, and long lists of modules that stay unquantised: CPU seconds of whole commands.

    python benchmarks/speed/layers.py [LAYERS ...]

Bars, on a machine whose cold start is 0.25 s: `estimate` of 3,000 distinct layers <= 5 s; `diff` and `evolve` of 1,000
a few seconds; `count` of a config with 400 entries in its skip list well under 1 s. Seconds a layer must not grow.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ARCHSIM = [sys.executable, "-m", "archsim"]
SIZES = (250, 1000, 3000)
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 100, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False, "max_position_embeddings": 131072,
}  # fmt: skip


def spec(n: int) -> dict[str, object]:
    """A decoder in which no two layers are equal."""
    layers = [
        {
            "norm": {"kind": "rmsnorm"},
            "attention": {"kind": "gqa", "n_heads": 32, "n_kv_heads": 8, "d_head": 128},
            "ffn": {"kind": "swiglu", "d_ff": 8192 + 16 * i},
        }
        for i in range(n)
    ]
    head = {"final_norm": {"kind": "rmsnorm"}, "head": {"tied": False}, "weights": {"default": "bf16"}}
    return {"name": "many", "d_model": 4096, "vocab_size": 32000, "layers": layers, **head}


def skip_list() -> dict[str, object]:
    """A config that names the attention of every layer by patterns."""
    ignored = [
        f"model.layers.{i}.self_attn{part}*" for i in range(100) for part in ("", ".q_proj", ".k_proj", ".v_proj")
    ]
    weights = {"num_bits": 4, "type": "float", "group_size": 16}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    scheme = {"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": groups, "ignore": ignored}
    return CONFIG | {"quantization_config": scheme}


def seconds(*command: str) -> float:
    """CPU seconds (user + system) of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*ARCHSIM, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):  # 1: the answer is no, as of a model that fits no device
        raise SystemExit(done.stderr.decode())
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Time the commands on growing models."""
    sizes = [int(text) for text in sys.argv[1:]] or list(SIZES)
    with tempfile.TemporaryDirectory() as folder:
        for n in sizes:
            path = Path(folder) / f"many{n}.yaml"
            path.write_text(yaml.safe_dump(spec(n)))
            for command in (["estimate", str(path), "--hw", "h100"], ["diff", str(path), "llama2-70b"]):
                took = seconds(*command)
                print(f"{command[0]:9} {n:6,} distinct layers  {took:7.2f} s CPU  {1e3 * took / n:6.2f} ms a layer")
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(skip_list()))
        print(f"count     400 skipped modules    {seconds('count', str(config)):7.2f} s CPU")


if __name__ == "__main__":
    main()
