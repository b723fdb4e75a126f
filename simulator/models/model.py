"""One model: its blocks of layers, embeddings and output head, summed into parameters, KV-cache bytes and ops."""

import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, get_args

from pydantic import Field, model_validator

from simulator.errors import NotModelledError, ProfileError, Setting, nearest
from simulator.models.architecture import Architecture
from simulator.models.blocks import NORM_TRAFFIC, Block, Repeat
from simulator.models.format_names import ending
from simulator.models.latent import LatentAttention
from simulator.models.layers import Attention, Mixer, MixtureOfExperts, Recurrent
from simulator.models.layout import Layout, Weights
from simulator.models.op_builders import SINGLE, Ops, PositiveInt, elementwise, linear
from simulator.models.operations import Counts, Op, Span
from simulator.models.refused import refuse_known
from simulator.models.side_paths import HyperConnections, LayerInputs
from simulator.models.vision import VisionEncoder
from simulator.profile import Number, Profile, find, joined, organisations

KIND = "model_profiles"


class Model(Profile):
    """A decoder-only language model, as its published configuration describes it.

    Raises ProfileError for a layer without a block of its name, NotModelledError for several window sizes.
    """

    name: str
    aliases: tuple[str, ...] = ()
    architecture: Architecture | None = None  # architectures[0] of its config.json, where that is known
    notes: str = ""
    hidden: PositiveInt
    vocab: PositiveInt
    max_context_tokens: PositiveInt
    tied_embeddings: bool = False
    learned_positions: Annotated[int, Field(ge=0)] = 0
    layer_inputs: LayerInputs | None = None
    hyper_connections: HyperConnections | None = None
    embedding_norm: bool = False
    norm_bias: bool = False
    norm_weights: bool = True
    head_bias: bool = False
    dtype: str = "bf16"
    weight_dtype: str = "bf16"
    fp8_dtype: str = "fp8"  # format of its publisher's fp8 checkpoint, beside the one in weight_dtype
    fp4_dtype: str = "nvfp4"  # format of its fp4 checkpoint; that may leave attention in the model's own type
    int4_dtype: str = "int4"  # format of its int4 checkpoint, likewise
    blocks: dict[str, Block]
    layers: Annotated[tuple[Repeat, ...], Field(min_length=1)]
    vision: VisionEncoder | None = None  # beside the language model, which is all else here
    published_parameters: Number | None = None
    published_cache_bytes_per_token: Number | None = None

    @model_validator(mode="after")
    def _check(self) -> "Model":
        for name in self.layer_names:
            if name not in self.blocks:
                because = "it is named under layers: but missing under blocks:"
                raise ProfileError(f"block {name!r}", because, nearest(name, self.blocks))
        spans = {_span(block.mixer) for block in self.blocks.values() if block.mixer} - {None}
        if len(spans) > 1:
            because = "one window size per model is modelled"
            raise NotModelledError(f"windows {sorted(spans, key=str)}", because, "Give one")
        return self

    def checkpoint_format(self, stated: str) -> str:
        """Return the format of the checkpoint that is called `stated`: one of fp4 or int4 may cover only some layers.

        "mxfp4" is of routed experts alone, or of all linear layers of a model that has none (Quark: amd/Llama-*-MXFP4).

        >>> load_model("kimi-k2.5").checkpoint_format("int4"), load_model("llama-3.1-8b").checkpoint_format("int4")
        ('int4-experts', 'int4')
        >>> load_model("gpt-oss-20b").checkpoint_format("mxfp4"), load_model("llama-3.1-8b").checkpoint_format("mxfp4")
        ('mxfp4', 'mxfp4-w4a4')
        >>> load_model("deepseek-v3").checkpoint_format("fp8")
        'fp8-block'
        """
        linear = {} if self.is_routed else {"mxfp4": "mxfp4-w4a4"}
        blocks = {"fp8": "fp8-block"} if self.weight_dtype == "fp8-block" else {}
        return {"nvfp4": self.fp4_dtype, "int4": self.int4_dtype, **blocks, **linear}.get(stated, stated)

    @property
    def is_routed(self) -> bool:
        """Whether layers send tokens to some of many experts."""
        return any(isinstance(block.ffn, MixtureOfExperts) for block in self.blocks.values())

    @property
    def published_fp8(self) -> str:
        """Format of its publisher's checkpoint in fp8: with a scale for each block of 128 x 128, or others.

        >>> load_model("qwen3-32b").published_fp8, load_model("llama-3.1-8b").published_fp8
        ('fp8-block', 'fp8')
        """
        return self.weight_dtype if self.weight_dtype == "fp8-block" else self.fp8_dtype

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Names of the blocks, first layer first, one per layer."""
        return tuple(chain.from_iterable(run.of * run.repeat for run in self.layers))

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm of the hidden size."""
        return self.hidden * (self.norm_weights + self.norm_bias)

    @property
    def _parts(self) -> int:
        """Mixers and feed-forward blocks of all layers, each of which hyper-connections surround."""
        return sum(times * sum(part is not None for part in (block.mixer, block.ffn)) for block, times in self._blocks)

    @property
    def _blocks(self) -> list[tuple[Block, int]]:
        return [(self.blocks[name], times) for name, times in Counter(self.layer_names).items()]

    @property
    def mixer_kinds(self) -> set[str]:
        """Kinds of mixers that its layers have."""
        return {block.mixer.kind for block in self.blocks.values() if block.mixer}

    @property
    def span(self) -> Span | None:
        """Window or chunk of its local layers, None if it has none."""
        return next((_span(block.mixer) for block, _ in self._blocks if block.mixer and block.mixer.window), None)

    @property
    def latent(self) -> LatentAttention | None:
        """The latent attention of its layers, None if no layer has one.

        >>> load_model("deepseek-v3.2").latent.indexer.chosen, load_model("llama-3.1-8b").latent
        (2048, None)
        """
        return next((each.mixer for each, _ in self._blocks if isinstance(each.mixer, LatentAttention)), None)

    @property
    def attention_layers(self) -> tuple[int, int]:
        """(full, windowed): layers that cache every token, and layers that cache a sliding window only.

        >>> load_model("gpt-oss-20b").attention_layers, load_model("qwen3.5-27b").attention_layers
        ((12, 12), (16, 0))
        """
        found = ((block.mixer, times) for block, times in self._blocks if block.mixer)
        caching = [(mixer, times) for mixer, times in found if mixer.cache_bytes_per_token() > 0]
        windowed = sum(times for mixer, times in caching if _held(mixer) is not None)
        return sum(times for _, times in caching) - windowed, windowed

    @property
    def recurrent_layers(self) -> int:
        """Layers with a state of constant size per sequence that sums up all tokens before."""
        recurrent = get_args(Recurrent)
        return sum(times for block, times in self._blocks if isinstance(block.mixer, recurrent))

    def weights(self, layout: Layout = SINGLE) -> Weights:
        """Parameters on the device that holds most: its share of the layers, the embeddings and the output head.

        Pipeline stages are assumed to hold equal shares of the layers; the first one adds the embeddings, the last the
        head. Raises NotModelledError if the layout does not divide a layer's heads, columns or experts.
        """
        norm = self.norm_parameters
        layers = sum((block.weights(self.hidden, norm, layout) * times for block, times in self._blocks), Weights())
        streams = self.hyper_connections
        layers += Weights(other=self._parts * streams.parameters(self.hidden) if streams else 0)
        embeddings = (self._vocab_share(layout) + self.learned_positions) * self.hidden
        ends = [Weights(other=embeddings + self.embedding_norm * norm)]
        ends[0] += self.layer_inputs.weights(self.hidden, layout) if self.layer_inputs else Weights()
        head = self._vocab_share(layout) * (0 if self.tied_embeddings else self.hidden) + self.vocab * self.head_bias
        ends.append(Weights(other=head + norm + (streams.last_parameters(self.hidden) if streams else 0)))
        if layout.pp == 1:
            return layers + ends[0] + ends[1]
        share = Weights(*(-(-each // layout.pp) for each in layers.counts))
        return share + max(ends, key=lambda end: end.total)

    def _vocab_share(self, layout: Layout) -> int:
        return -(-self.vocab // layout.tp)

    @property
    def parameters(self) -> int:
        """Parameters of the whole checkpoint; Llama-3.1-8B's total is published with its weights on Hugging Face.

        >>> load_model("llama-3.1-8b").parameters
        8030261248
        """
        return self.weights().total

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses: all but the experts to which it is not routed."""
        idle = (
            times * block.ffn.idle_parameters(self.hidden)
            for block, times in self._blocks
            if isinstance(block.ffn, MixtureOfExperts)
        )
        return self.parameters - sum(idle)

    @property
    def computed_parameters(self) -> int:
        """Active parameters without tables of which a token looks up a row: embeddings, unless tied, and positions.

        gpt-oss-120b has 5.13 billion (its model card).

        >>> load_model("gpt-oss-120b").active_parameters, load_model("gpt-oss-120b").computed_parameters
        (5711982912, 5132849472)
        """
        rows = (0 if self.tied_embeddings else self.vocab) + self.learned_positions
        own = self.layer_inputs.vocab * self.layer_inputs.row if self.layer_inputs else 0
        return self.active_parameters - rows * self.hidden - own

    @property
    def checkpoint_bytes(self) -> float:
        """Bytes of the weights in the checkpoint's own format."""
        layout = Layout(weight_dtype=self.weight_dtype, model_dtype=self.dtype, cache_dtype=self.dtype)
        return layout.weight_bytes(self.weights(layout))

    def cache_bytes(self, tokens: int, layout: Layout = SINGLE) -> float:
        """KV-cache bytes of one sequence of `tokens` tokens on one device; windowed layers hold their window at most.

        Llama-3.1-8B keeps 2 x 32 layers x 8 heads x 128 x 2 bytes per token (its config.json). Raises NotModelledError
        as `weights` does.

        >>> load_model("llama-3.1-8b").cache_bytes(1)
        131072.0
        """
        return sum(
            times * block.mixer.cache_bytes_per_token(layout) * min(tokens, _held(block.mixer) or tokens)
            for block, times in self._blocks
            if block.mixer is not None
        ) / (layout.pp * layout.dp)

    def state_bytes(self, layout: Layout = SINGLE) -> float:
        """Bytes of the states of one sequence, of any length, on one device: recurrent ones, or its last tokens.

        48 layers of 48 heads with 128 x 128 numbers in fp32, and 3 x 10,240 inputs of a convolution in bf16
        (Qwen3.5-27B's config.json):

        >>> load_model("qwen3.5-27b").state_bytes() == 48 * (48 * 128 * 128 * 4 + 3 * 10240 * 2)
        True
        """
        states = (times * block.mixer.state_bytes(layout) for block, times in self._blocks if block.mixer)
        return sum(states, 0.0) / (layout.pp * layout.dp)

    def ops(self, layout: Layout = SINGLE) -> Ops:
        """Return all ops of one step on the devices of one replica, with those of all pipeline stages.

        Raises NotModelledError as `weights` does.
        """
        local_vocab = self._vocab_share(layout)
        head = linear("output head", (self.hidden, local_vocab), layout, part="other", per="logits")
        blocks = (
            replace(op, repeats=op.repeats * times)
            for block, times in self._blocks
            for op in block.ops(self.hidden, layout)
        )
        embedding = elementwise("embedding and final norm", (1 + NORM_TRAFFIC) * self.hidden, layout)
        inputs = self.layer_inputs.ops(self.hidden, layout) if self.layer_inputs else ()
        streams = self.hyper_connections.ops(self.hidden, layout) if self.hyper_connections else ()
        mixing = (replace(op, repeats=self._parts) for op in streams)
        return layout.of_one_rank((embedding, *inputs, *blocks, *mixing, head, *self._exchanges(layout)))

    def _exchanges(self, layout: Layout) -> Ops:
        """Return the communication outside the blocks: embeddings, logits, activations between pipeline stages."""
        size = self.hidden * layout.activation_bytes
        stages = Op(
            name="send to next stage",
            rate="send",
            link_bytes=Counts(tokens=size),
            link_devices=layout.devices,
            repeats=layout.pp - 1,
        )
        if layout.tp == 1:
            return (stages,) if layout.pp > 1 else ()
        gathered = Counts(logits=self.vocab * layout.activation_bytes / 2)  # an all-gather is half an all-reduce
        collectives = (
            Op("all-reduce of embeddings", "all_reduce", link_bytes=Counts(tokens=size), link_devices=layout.tp),
            Op("all-gather of logits", "all_reduce", link_bytes=gathered, link_devices=layout.tp),
        )
        return (*collectives, stages) if layout.pp > 1 else collectives


def _span(mixer: Mixer) -> Span | None:
    return Span(mixer.window, isinstance(mixer, Attention) and mixer.chunked) if mixer.window else None


def _held(mixer: Mixer) -> int | None:
    """Return the most tokens that a layer caches, None for all; a layer whose indexer chooses tokens caches all."""
    return mixer.window if isinstance(mixer, Attention) and not mixer.indexer else None


TUNED = re.compile(r"[-_\s](instruct|chat|it|hf|base|qat|lm|abliterated(-v[\d.]+)?)(?=[-_\s]|$)")


def load_model(name: str) -> Model:
    """Return a model by name, alias or path of a YAML profile; a tuned checkpoint is its base model.

    Raises ProfileError, with the nearest names, if there is no such profile, NotModelledError for what is known and not
    modelled.

    >>> load_model("Qwen/Qwen2.5-7B-Instruct").id, load_model("bartowski/google_gemma-3-12b-it").id
    ('qwen2.5-7b', 'gemma-3-12b')
    """
    return Model.from_yaml(_find(name))


def _find(name: str) -> Path:
    try:
        return find(KIND, name)
    except ProfileError:
        last = name.rpartition("/")[2]
        organisation, _, rest = last.partition("_")  # as in names of those who quantise others' models
        bare = (rest, TUNED.sub("", rest.lower())) if joined(organisation) in organisations(KIND) else ()
        for plain in (TUNED.sub("", last.lower()), *bare):
            with suppress(ProfileError):
                return find(KIND, plain)
        refuse_known(name)
        with suppress(OSError):  # a name that is too long for a file
            config = Path(name) / "config.json" if Path(name).is_dir() else Path(name)
            if config.suffix == ".json":
                remedy = f"Say `infercast import-model {config}`, then --model and the file that it names"
                raise ProfileError(Setting("model", name), "a config.json is no profile yet", remedy) from None
        raise


def checkpoint(name: str) -> tuple[Model, str]:
    """Return a model and the number format in which a checkpoint of this name is stored, "" for the profile's own.

    FP8 is what its publisher calls so: Qwen's has a scale for each block of 128 x 128, others' of the same model need
    not. Raises ProfileError, with the nearest names, if there is no such model.

    >>> [checkpoint(each)[1] for each in ("Llama-3.1-8B-Instruct-FP8", "gemma-3-4b-it-4bit", "llama-3.1-8b")]
    ['fp8', 'mlx-q4', '']
    >>> [checkpoint(each)[1] for each in ("Qwen/Qwen3-32B-FP8", "RedHatAI/Qwen3-32B-FP8-dynamic")]
    ['fp8-block', 'fp8']
    """
    organisation, slash, last = name.rstrip("/").rpartition("/")
    stem, stored = ending("" if name.endswith((".yaml", ".yml")) else last)
    for each in (name, f"{organisation}{slash}{stem}", stem.removeprefix("Meta-")):
        with suppress(ProfileError):
            model = load_model(each)
            usual = model.weight_dtype == "mxfp4" and last.upper().endswith("GGUF")  # of gpt-oss, with no file's name
            publishers = {"", *(alias.partition("/")[0] for alias in model.aliases if "/" in alias)}
            if last.upper().endswith("-FP8") and organisation in publishers:
                stored = model.published_fp8
            return model, "" if usual or stored in ("", model.weight_dtype) else stored
    return load_model(name), ""
