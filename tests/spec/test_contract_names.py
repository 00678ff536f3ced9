"""Spellings that other programs may rely on: devices of measured files, engines in any case."""

import pytest

from archsim.base.errors import UnknownName
from archsim.engines.names import engine_and_version
from archsim.spec.load import load_hardware

DEVICES = [
    "A100-80GB",
    "A100-PCIe",
    "A100-PCIe-80GB",
    "A100-SXM",
    "A100-SXM-80GB",
    "a100-sxm-40gb",
    "A10G",
    "A40",
    "Apple-M1-7c-8GB",
    "Apple-M1-Max-32c-64GB",
    "Apple-M1-Ultra-64c",
    "Apple-M2-Max-30c",
    "Apple-M2-Ultra-76c-192GB",
    "Apple-M3-Max-40c-64GB",
    "Apple-M3-Ultra-512GB",
    "Apple-M4-10c",
    "Apple-M5",
    "B200-SXM",
    "b200_sxm",
    "B300-SXM",
    "b300_sxm",
    "gb200",
    "gb300",
    "GB10-DGX-Spark",
    "Gaudi-2",
    "Gaudi-3",
    "H100-PCIe-80GB",
    "H100-SXM",
    "h100_sxm",
    "h100-sxm-80gb",
    "H20",
    "H20-96GB",
    "H200-SXM",
    "h200_sxm",
    "h200-sxm-141gb",
    "H800",
    "h800-sxm-80gb",
    "Jetson-AGX-Orin-64GB",
    "L40S",
    "MI250X-1GCD",
    "MI300X",
    "RTX-3060-12GB",
    "RTX-3070",
    "RTX-3080-10GB",
    "RTX-3080-Ti",
    "RTX-3090",
    "RTX-3090-Ti",
    "RTX-4000-Ada",
    "RTX-4070-Ti",
    "RTX-4080",
    "RTX-4090",
    "rtx-4090-24gb",
    "RTX-5000-Ada",
    "RTX-6000-Ada",
    "RTX-A6000",
    "rtx-a6000-48gb",
    "RTX-PRO-6000-Server",
    "RX-7900-XTX",
    "Radeon-AI-Pro-R9700",
    "Strix-Halo",
    "T4",
    "tpu-v4",
    "tpu-v5e",
    "tpu-v5p",
    "TPU-v6e",
    "tpu7x-ironwood",
]

DRIVERS = {
    "NVIDIA H100 80GB HBM3": "h100-sxm", "NVIDIA H100 PCIe": "h100-pcie", "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb", "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb", "NVIDIA GB10": "dgx-spark",
    "Tesla V100-SXM2-32GB": "v100-sxm2", "NVIDIA GeForce RTX 3060": "rtx-3060", "NVIDIA B300 SXM6 AC": "b300-sxm",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada", "NVIDIA GH200 480GB": "gh200-96gb",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000", "AMD Instinct MI300X OAM": "mi300x",
    "Apple M2 Ultra": "apple-m2-ultra", "Radeon 8060S Graphics": "strix-halo",
    "Intel(R) Arc(TM) B580 Graphics": "arc-b580",
}  # fmt: skip
"""Names as nvidia-smi, rocm-smi and llama-bench print them."""

ENGINES = {
    "vLLM": "vllm", "vllm 0.11.0": "vllm", "VLLM@0.9.1": "vllm", "sglang": "sglang", "TRTLLM": "trtllm",
    "TensorRT-LLM": "trtllm", "llama.cpp": "llamacpp", "Ollama": "llamacpp", "transformers": "hf",
    "gpt-fast": "gptfast", "ExLlamaV2": "exllamav2", "MLC-LLM": "mlcllm", "AutoAWQ GEMM": "autoawq",
    "AutoAWQ GEMM/GEMV": "autoawq", "TinyChat": "tinychat", "QServe": "qserve", "NIM": "trtllm",
    "optimum-habana": "hf", "generic": "generic", "AutoAWQ GEMV 0.9.1": "autoawqgemv", "vllm v0.6.4.post1": "vllm",
    "vllm==1.0": "vllm", "vllm (b1234)": "vllm", "TensorRT-LLM PyTorch backend": "trtllm",
    "optimum-habana / SynapseAI": "hf", "NIM (TensorRT-LLM)": "trtllm", "ollama / llama.cpp": "llamacpp",
    "llama.cpp llama-bench": "llamacpp", "SGLang 0.4.6.post1": "sglang", "vLLM V0": "vllm",
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("spelling", DEVICES)
def test_device_spellings_resolve(spelling: str) -> None:
    """Case, hyphens and underscores do not matter; capacity suffixes are aliases."""
    device = load_hardware(spelling)
    assert device.bandwidth > 0
    assert device.memory_bytes > 0


@pytest.mark.parametrize(("spelling", "device"), DRIVERS.items())
def test_names_of_drivers_resolve(spelling: str, device: str) -> None:
    """The makers' words, trade marks and what stands behind a name do not matter."""
    assert load_hardware(spelling).id == device


@pytest.mark.parametrize(
    "spelling", ["NVIDIA", "Quadro RTX 6000", "NVIDIA GeForce RTX 4060 Laptop GPU", "Tesla  ", "AMD"]
)
def test_another_device_of_like_name_is_not_meant(spelling: str) -> None:
    """A Quadro RTX 6000 is no RTX 6000 Ada, and a laptop's GPU not the desktop's."""
    with pytest.raises(UnknownName, match="no device"):
        load_hardware(spelling)


@pytest.mark.parametrize(("spelling", "engine"), ENGINES.items())
def test_engine_spellings_resolve(spelling: str, engine: str) -> None:
    """Engines with or without a version, in any case."""
    assert engine_and_version(spelling)[0] == engine


@pytest.mark.parametrize("spelling", ["vlm", "vllmx", "", "x" * 1000, "hfoo"])
def test_what_is_no_engine_is_refused(spelling: str) -> None:
    """A spelling must end where a word does."""
    with pytest.raises(UnknownName, match="no engine"):
        engine_and_version(spelling)
