"""`infercast import-model`: a Hugging Face config.json becomes a model profile."""

from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.numbers import count
from simulator.cli.options.deployment_options import OutputFormat
from simulator.cli.output import Column, Result, Row, View, emit
from simulator.cli.text_layout import Format
from simulator.models.hf_importer import usual_name, write_profile
from simulator.models.model import Model
from simulator.units import gibibytes

NAME_HELP = "Name of the profile, and of its file: a-z, 0-9, '.', '_', '-'."


def command(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.JSON", help="The model's config.json.")],
    name: Annotated[str, typer.Option("--name", show_default="its folder's", help=NAME_HELP)] = "",
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder to write NAME.yaml into.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace a profile that is there.")] = False,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Write a model profile from a Hugging Face config.json.

    What infercast does not model is refused by name, and then nothing is written. A folder named model_profiles inside
    your own folder of profiles (--profiles) makes the model known by its name.
    """
    path = write_profile(config, to, name or usual_name(config), force)
    model = Model.from_yaml(path)
    row: Row = {
        "file": str(path),
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "computed_parameters": model.computed_parameters,
        "weight_bytes": model.checkpoint_bytes,
        "weight_bytes_at_16_bits": 2 * model.parameters,
        "cache_bytes_per_token": model.cache_bytes(1),
        "layers": len(model.layer_names),
        "max_context_tokens": model.max_context_tokens,
        "weight_dtype": model.weight_dtype,
        "notes": model.notes,
    }
    notes = [*([model.notes] if model.notes else []), f"Use it: --model {path}"]
    same = {copy for copy, of in COPIES.items() if row[copy] == row[of]}
    shown = [each for each in COLUMNS if each.key not in same]
    emit(Result({"models": [row]}, [View("Written", shown, [row], upright=True)], notes), form)


COLUMNS = (
    Column("file", "file"),
    Column("parameters", "parameters", count),
    Column("active_parameters", "active for one token", count),
    Column("computed_parameters", "  without the embedding table", count),
    Column("weight_bytes", "weights as they are stored", gibibytes),
    Column("weight_bytes_at_16_bits", "weights at 16 bits", gibibytes),
    Column("cache_bytes_per_token", "cache bytes per token", count),
    Column("layers", "layers"),
    Column("max_context_tokens", "longest context, tokens", count),
    Column("weight_dtype", "weights of the checkpoint"),
)
# Left out of the table where they are the same as another
COPIES = {"computed_parameters": "active_parameters", "weight_bytes": "weight_bytes_at_16_bits"}
