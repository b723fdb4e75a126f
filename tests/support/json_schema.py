"""The shipped JSON Schema, which every json that a test makes in its process has to meet (tests/conftest.py)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from jsonschema import Draft202012Validator

from simulator.cli import output

CHECK = Draft202012Validator(json.loads(output.SCHEMA.read_text(encoding="utf-8")))


@contextmanager
def every_json_is_checked() -> Iterator[None]:
    """Let a result that is not as the schema says raise jsonschema.ValidationError where it is made json."""
    unchecked = output._json

    def checked(result: output.Result) -> str:
        text = unchecked(result)
        CHECK.validate(json.loads(text))
        return text

    with patch.object(output, "_json", checked):
        yield
