"""How an engine batches requests, as its document says: the rules that a scheduler follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from archsim.base.errors import UsageError
from archsim.serving.expected_answers import ExpectedAnswers

DEFAULT_RATIO = ExpectedAnswers()
"""SGLang's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """How servers of two pools behave, those that compute prompts and those that make answers.

    room_first: whether room for a cache is taken before its prompt is computed. reserve: tokens that are kept free for
    each request that has room where answers are made (see `DecodeRoom`); None: by the rule of `Policy.room`. longest:
    tokens of an answer that count at most. places: requests that have room there at most, as a multiple of those that
    run; of servers that run up to `few` requests, `places_of_few`; None: room is given out while one more may run.
    sent_run: whether prompts whose caches are not sent yet count as running where they were computed.
    """

    room_first: bool = False
    reserve: int | None = None
    longest: int = 4096
    places: int | None = None
    few: int = 0
    places_of_few: int = 1
    sent_run: bool = False


ONE_AFTER_THE_OTHER = PoolRules()
"""Room is taken when the prompt is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one engine at one version, and its limits for one step.

    max_seqs: requests that run at once. budget: tokens of a step. first: whether running requests or prompts are
    scheduled first; prompts then have all their blocks from the start. mixes: whether prompts share a step with
    decodes; else a step with prompts has nothing else. chunked: whether a prompt is cut where the budget ends; else it
    waits for a step that holds it. longest_chunk: tokens of one prompt in a step at most (0: the budget).
    prompt_tokens: of a step; a prompt that does not fit in them waits where others are before it, and is not cut (0:
    any). room: cache that must be free before a prompt is admitted: that of its first `chunk`, of the whole `prompt`,
    of `prompt_and_answer` so that nothing ever gives way, or of these beside what is `expected` of the others' answers.
    watermark: share of the blocks that an admission leaves free. gives_way: for a block, the request admitted last, or
    that with the fewest tokens of its answer; requeue: at which end of the queue it waits. places_until: whether those
    that have ended keep their places until the next step of decodes is scheduled. admit_after_preemption:
    whether a step in which requests gave way admits others. ahead: steps that are scheduled while the one before them
    runs. in_flight: of a pipeline, whether its batches share `max_seqs`, each has a part, or there is only one.
    ignores_eos: whether requests are known to make every token that they may; shares_prefixes: whether prompts find
    what others left in the cache. wait_steps: steps that whole prompts let pass at most beside requests that decode,
    where the step would be of fewer than `wait_tokens` tokens with them (TensorRT-LLM's `batch_wait_timeout_iters` and
    `batch_wait_max_tokens_ratio`). pools: of servers for prompts or answers alone.
    """

    max_seqs: int
    budget: int
    first: Literal["running", "prompts"] = "running"
    mixes: bool = True
    chunked: bool = True
    longest_chunk: int = 0
    prompt_tokens: int = 0
    room: Literal["chunk", "prompt", "prompt_and_answer", "expected"] = "chunk"
    expected: ExpectedAnswers = DEFAULT_RATIO
    watermark: float = 0.0
    gives_way: Literal["last", "fewest_tokens"] = "last"
    requeue: Literal["head", "tail"] = "head"
    places_until: Literal["end", "decodes"] = "end"
    admit_after_preemption: bool = False
    ahead: int = 0
    in_flight: Literal["shared", "split", "one"] = "shared"
    ignores_eos: bool = False
    shares_prefixes: bool = True
    wait_steps: int = 0
    wait_tokens: int = 0
    pools: PoolRules = ONE_AFTER_THE_OTHER

    def __post_init__(self) -> None:
        for name in ("max_seqs", "budget"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.mixes and self.first == "prompts":
            raise UsageError("prompts that are scheduled first have a step of their own")
        if self.room == "chunk" and self.first == "prompts":
            raise UsageError("prompts that are scheduled first need room for all their tokens")
        if self.mixes and self.budget < self.max_seqs:
            raise UsageError(
                f"a step of {self.budget:,} tokens has no room for {self.max_seqs:,} decodes",
                hints=("raise --max-num-batched-tokens or lower --max-num-seqs",),
            )

    @property
    def places(self) -> int | None:
        """Requests that have room at most on a server that makes answers alone."""
        pools = self.pools
        if pools.places is None:
            return None
        return self.max_seqs * (pools.places_of_few if self.max_seqs <= pools.few else pools.places)

    def longest(self, prompt: int, answer: int) -> int:
        """Tokens that a step must hold at once for a request: its prompt, with its answer where it may give way."""
        if self.chunked:
            return 0
        return prompt if self.room == "prompt_and_answer" else prompt + answer - 1
