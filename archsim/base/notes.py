"""Assumptions and warnings of an answer: a sentence for people, and a code by which programs recognise it.

Codes with A are assumptions, which every answer makes; codes with W say what the user should look at. A sentence may
be reworded, a code keeps its meaning. `archsim explain CODE` prints the paragraph in `NOTES`.
"""

from __future__ import annotations

from collections.abc import Iterable

from archsim.base.data_class import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """One assumption or warning with the numbers of its answer. Raises KeyError for a code that `NOTES` lacks."""

    code: str
    text: str

    def __post_init__(self) -> None:
        NOTES[self.code]

    def __str__(self) -> str:
        return self.text


def notes_to_dict(assumptions: Iterable[Note], warnings: Iterable[Note]) -> dict[str, list[str]]:
    """The keys of an answer's JSON: sentences, and their codes in the same order."""
    found: dict[str, list[str]] = {}
    for key, code_key, notes in (
        ("assumptions", "assumption_codes", tuple(assumptions)),
        ("warnings", "warning_codes", tuple(warnings)),
    ):
        found |= {key: [note.text for note in notes], code_key: [note.code for note in notes]}
    return found


URGENT = ("A11", "A19", "A28", "A29", "A35", "A45", "A54")
"""Assumptions that a reader must see before the figures: a format or an engine that nobody named, rules older
than the engine, and what of a checkpoint is left out."""


def urgent(assumptions: Iterable[Note]) -> tuple[str, ...]:
    """The assumptions that stand above the figures."""
    return tuple(note.text for note in assumptions if note.code in URGENT)


def past_context(tokens: int, limit: int, name: str) -> Note:
    """The warning about a sequence beyond the context length of a model."""
    return Note("W01", f"{tokens:,} tokens exceed the context length of {name} ({limit:,})")


NOTES: dict[str, str] = {
    "A01": (
        "The ideal time is the speed of light: datasheet peaks, every tensor moved once, elementwise work fused into "
        "its neighbours, activations that fit the last-level cache kept there."
    ),
    "A02": (
        "Prefill computes logits at the last position only, and attention counts the query-key pairs that the mask "
        "allows."
    ),
    "A03": "The share of a device's memory that may be used, and what the runtime takes of it.",
    "A04": ("A long prefill is split into chunks; its activations are those of one chunk, not of the whole prompt."),
    "A05": "Decode is one step at the mean context: the prompt and half the answer.",
    "A06": ("Tokens pick experts evenly and independently: T tokens read E(1 - (1 - k/E)^T) of E experts at top-k."),
    "A07": (
        "A decode step passes through the stages one after another; a prefill is split into chunks of 2,048 tokens so "
        "that all stages work at once."
    ),
    "A08": (
        "What expected times rest on: kernels measured on this device (calibrated), on other devices (transferred), "
        "or datasheet peaks times usual efficiencies."
    ),
    "A09": "Which engine's memory rules are used for the named engine, and its host time per step.",
    "A10": "The format of the KV cache, where none is given.",
    "A11": "The requested format is one of experts; the model has none, so its counterpart for linear weights is used.",
    "A12": "The device has no units for a number format: matrix products in it run in the next wider format.",
    "A13": "The device lists no fp32 vector rate: it is taken from its 16-bit matrix peak.",
    "A14": "The device lists no fp32 peak for matrix products: they run at its bf16 peak.",
    "A15": (
        "The steady state of continuous batching: how prompts and decodes share steps; all requests are equal and "
        "share no prefix."
    ),
    "A16": (
        "Kernel launches whose fitted time is below the roofline of their own work take the time of the roofline: how "
        "many there are, and their share of the time."
    ),
    "A19": "The engine is newer than its rules in archsim: those of the version named are used.",
    "A20": "The engine has no memory rules of its own: those of another engine are used.",
    "A21": "No version of the engine is given: the one named is assumed.",
    "A22": "The longest sequence that the engine is started for, where `--max-model-len` is not given.",
    "A23": "The tokens and sequences of the largest step, which determine the activations.",
    "A24": "Device memory of libraries outside the allocator (CUDA context, NCCL), and its observed range.",
    "A25": "Device memory of captured graphs (CUDA graphs, HIP graphs on AMD), and its observed range.",
    "A26": "With attention data parallelism, tokens and concurrency are those of one replica.",
    "A27": "Towers are in memory: in the format of unquantised tensors, sharded over ranks that divide their heads.",
    "A28": "Weights that one engine's files hold (GGUF, EXL2) imply that engine where none is named.",
    "A29": "The checkpoint holds towers besides the language model, which are not counted, or not in memory.",
    "A30": "What FLOPs per token refer to: one decode step at the context length, or an encoder's input by its tokens.",
    "A31": "What KV bytes refer to: one sequence in 16 bits, with windows applied.",
    "A32": "What times of an evolution refer to: one sequence on one device, whether it fits or not.",
    "A33": "Layers that only one of two models has: the first layers stay, and the pattern is continued.",
    "A34": "Parts that are named and not counted: prediction modules, towers, pre-training heads.",
    "A35": "The name of a family of formats means the scheme of that family in which the checkpoint is stored.",
    "A36": (
        "The config.json of the checkpoint has keys that the class of its family never reads, or reads only for "
        "dropout, initialisation, tokens or training, and entries of its quantisation skip list that name no matrix "
        "of the model. They change no count, shape or time, so they are ignored. A key that could is an error."
    ),
    "A37": (
        "The KV cache of one replica holds so many tokens, in whole blocks. With a prefix cache (`--prefix-cache`) "
        "blocks of finished requests stay until they are reused, and prompts with the same prefix find them; no "
        "prompt finds more than the load says it shares. `--kv-tokens` states the number that the engine's log shows."
    ),
    "A38": (
        "Times of requests are those of the engine: from its queue to the step that makes a token. Network, HTTP and "
        "tokenizer come on top."
    ),
    "A51": "What training figures refer to, where architectures are compared: one sequence on one device.",
    "A39": "The length of training sequences and the sequences of a step, where they are not given.",
    "A40": "The training kernels, the communication that overlaps with them and the recipe are those of a stack.",
    "A45": (
        "The model is traced: a PyTorch module was built without weights and one forward pass of it captured. Its "
        "parameters and FLOPs are exact; times come from the same kernel models as for specs, for what the module "
        "computes, which an engine may compute in fewer kernels. Only data parallelism can spread it. Experts are "
        "taken to be chosen evenly, and masks to hide nothing but what is causal."
    ),
    "A46": "The rank of adapters and the linear layers that have one, where they are not given.",
    "A47": (
        "Speculative decoding: every decode verifies its drafts in one step, with room in the step and in the cache "
        "for all of them, and the drafter runs after it. How many are accepted is drawn for each request and step from "
        "the acceptance that was stated. Weights and cache of the drafter are not taken from the memory."
    ),
    "A48": "Tokens of images or sounds, and when and where their encoder runs.",
    "A49": (
        "What dollars per token cover: the paid hours that serve the load, and how the time of steps is shared "
        "between prompts and answers."
    ),
    "A50": (
        "What watts rest on: power is fitted on measured runs as a function of how busy the devices are; joules carry "
        "the errors of power and time."
    ),
    "A52": (
        "A draft model of speculative decoding is in the memory of the devices beside the model, with a cache of its "
        "own for every token of the requests."
    ),
    "A53": (
        "A word for a format whose scales the checkpoint does not have: they are those that engines make when they "
        "quantise a 16-bit checkpoint themselves."
    ),
    "A54": (
        "A config.json of a model_type that archsim does not know, whose fields say that it is a decoder of the kind "
        "that LLaMA began, is read from them. Its code is not known: small vectors (biases, norms of queries and keys) "
        "may be missing from the count, and what no field tells from the layers. With a safetensors file beside it, "
        "its parameters are compared with the tensors."
    ),
    "W01": "Prompt and answer together exceed the context length of the model.",
    "W02": "The batch is smaller than the number of data-parallel replicas: some are idle.",
    "W03": "`--concurrency` is ignored: the KV cache has no room for one request, or the model does not decode.",
    "W04": "A peak of the device document departs by 3 to 15 % from units x FLOP per clock x clock.",
    "W05": "A number of the device document has no source.",
    "W06": "Converting the weights while loading needs more memory at its peak than the device has.",
    "W07": "Memory budget, activations and CUDA graphs together exceed the device.",
    "W08": "A model is estimated with its layers regrouped; times differ slightly from `estimate`.",
    "W09": "A model of the evolution does not fit on the device; its times assume enough memory.",
    "W10": "The engine that is named does not read checkpoints in the format of the model.",
    "W11": "The figures of the device are those of its announcement: nobody has measured them.",
    "W12": "All requests of a closed loop have one length: they start and end together, which real ones do not.",
    "W13": "Some requests can never run: prompt and answer exceed the cache, or a step that must hold them whole.",
    "W14": "The recipe is meant for adapters, but every weight is trained with it.",
    "W15": "The price is old or has no date of its own, or the device may be taken away.",
}
