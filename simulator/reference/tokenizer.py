"""Byte-pair tokenizers of GGUF files and Hugging Face folders; nothing is downloaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from simulator.errors import InfercastError, NotModelledError

CONTROL = 3  # token_type of GGUF
SPLITS: dict[str, list[Any]] = {
    "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
}


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A byte-pair tokenizer and the tokens that end a text."""

    codec: tokenizers.Tokenizer
    end_tokens: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without a beginning-of-text token."""
        return list(self.codec.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids, up to the first end token."""
        end = next((place for place, token in enumerate(tokens) if token in self.end_tokens), len(tokens))
        return str(self.codec.decode(list(tokens[:end]), skip_special_tokens=True))


def from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer in a GGUF file's metadata.

    Raises NotModelledError for other than byte-level BPE, InfercastError for one that lacks or contradicts something.
    """
    try:
        return _from_gguf(metadata)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InfercastError):
            raise
        raise _unsound(error) from error


def _unsound(error: Exception) -> InfercastError:
    return InfercastError("the tokenizer", f"it cannot be read ({error!r})", "Convert or download it anew")


def _from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    kind, split = metadata.get("tokenizer.ggml.model"), str(metadata.get("tokenizer.ggml.pre", "gpt-2"))
    if kind != "gpt2" or split not in SPLITS:
        given = f"the tokenizer {kind!r} with splitting {split!r}"
        raise NotModelledError(given, f"known is 'gpt2' with {', '.join(SPLITS)}", "Give a Hugging Face folder")
    words: list[str] = list(metadata["tokenizer.ggml.tokens"])
    merges = [tuple(each.split(" ")) for each in metadata["tokenizer.ggml.merges"]]
    codec = tokenizers.Tokenizer(models.BPE({word: place for place, word in enumerate(words)}, merges))
    codec.pre_tokenizer = pre_tokenizers.Sequence(SPLITS[split])
    codec.decoder = decoders.ByteLevel()
    types: list[int] = list(metadata["tokenizer.ggml.token_type"])
    codec.add_special_tokens([word for word, kind in zip(words, types, strict=True) if kind == CONTROL])
    ends = {metadata.get("tokenizer.ggml.eos_token_id")}
    ends |= {place for place, word in enumerate(words) if word == "<|endoftext|>"}
    return Tokenizer(codec, frozenset(int(str(each)) for each in ends if each is not None))


def from_folder(folder: Path) -> Tokenizer | None:
    """Return the tokenizer of tokenizer.json in a Hugging Face folder; None where there is no such file.

    Raises InfercastError for one that cannot be read.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        codec = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower one
        raise _unsound(error) from error
    names = ("<|endoftext|>", "<|im_end|>", "</s>", "<|end_of_text|>", "<|eot_id|>")
    ends = (codec.token_to_id(name) for name in names)
    return Tokenizer(codec, frozenset(each for each in ends if each is not None))


def needed_tokenizer(tokenizer: Tokenizer | None, what: str) -> Tokenizer:
    """Return the tokenizer; InfercastError about the model `what` where it has none."""
    if tokenizer is None:
        raise InfercastError(
            what, "it has no tokenizer, so no text goes in or out", "Give smollm2-135m or a checkpoint"
        )
    return tokenizer
