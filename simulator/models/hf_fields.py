"""Checked reading of a Hugging Face config.json: every error names the file and the field."""

from collections.abc import Mapping
from typing import Any

from simulator.errors import NotModelledError, ProfileError

HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads", "attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")
WIDTH = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
CONTEXT = (
    *("max_position_embeddings", "max_position_embedding", "n_positions", "max_seq_len", "seq_length", "n_ctx"),
    "model_max_length",
)
EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
MOE_WIDTH = ("moe_intermediate_size",)


class Fields:
    """The fields of a config.json, checked as they are read; `where` names the file in every error."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.raw, self.where = raw, where

    def maybe(self, *names: str) -> int | None:
        """Return the first of these fields that is neither missing nor null, None if all are.

        Raises ProfileError if it is not a whole number from 0 up.
        """
        for name in names:
            value = self.raw.get(name)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                    raise self.error(name, f"{value!r} must be a whole number of 0 or more", "Write, say, 32")
                return value
        return None

    def count(self, *names: str) -> int:
        """Return the first of these fields that is neither missing nor null.

        Raises ProfileError if none is there, or if it is not a whole number from 1 up.
        """
        value = self.maybe(*names)
        if value is None:
            others = f" (or {', '.join(names[1:])})" if names[1:] else ""
            raise self.error(names[0], "this field is required and missing", f"Add it{others}")
        if value == 0:
            raise self.error(names[0], "it is 0", "Write 1 or more")
        return value

    def flag(self, name: str) -> bool:
        """Return a true-or-false field; missing and null mean false. Raises ProfileError for anything else."""
        value = self.raw.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.error(name, f"{value!r} is neither true nor false", "Write one of the two")
        return bool(value)

    def each(self, name: str) -> list[Any] | None:
        """Return a list field, None if it is missing or null. Raises ProfileError for anything else."""
        value = self.raw.get(name)
        if value is not None and not isinstance(value, list):
            raise self.error(name, f"{value!r} must be a list", "Write it in square brackets")
        return value

    def part(self, name: str) -> "Fields":
        """Return the fields of a nested object; missing and null mean empty. Raises ProfileError for anything else."""
        value = self.raw.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(name, f"{value!r} must be an object", "Write it in braces")
        return Fields(value or {}, f"{self.where}: {name}")

    def having(self, others: Mapping[str, Any]) -> "Fields":
        """Return these fields with others beside them, or in their place."""
        return Fields({**self.raw, **others}, self.where)

    def error(self, name: str, because: str, remedy: str) -> ProfileError:
        """Return a ProfileError about one field."""
        return ProfileError(f"{self.where}: {name}", because, remedy)

    def refusal(self, name: str, because: str) -> NotModelledError:
        """Return a NotModelledError about the value of one field."""
        return NotModelledError(f"{self.where}: {name} {self.raw.get(name)!r}", because, "Write the profile by hand")
