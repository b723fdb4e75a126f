"""The class that computes a model, as its config.json names it; by it engines choose among their kernels."""

import re
from typing import Annotated

from pydantic import AfterValidator

from simulator.errors import ProfileError


def _class_name(name: str) -> str:
    if not re.fullmatch(r"[A-Z]\w*", name):
        remedy = "Give architectures[0] of its config.json, such as Qwen3MoeForCausalLM"
        raise ProfileError(repr(name), "it is no name of a class, but perhaps of a model", remedy)
    return name


Architecture = Annotated[str, AfterValidator(_class_name)]
