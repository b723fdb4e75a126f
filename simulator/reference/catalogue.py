"""Checkpoints by name: SmolLM2, a folder, a GGUF file, or random weights of a preset or model profile."""

from pathlib import Path

from simulator.errors import InfercastError, nearest
from simulator.models.model import KIND, Model, load_model
from simulator.profile_folders import names
from simulator.reference.checkpoint import Checkpoint, folder_checkpoint, random_checkpoint
from simulator.reference.gguf_file import gguf_checkpoint, smollm2_path

PRESETS = Path(__file__).parent / "presets"
SMOLLM2 = "smollm2-135m"


def load_checkpoint(name: str, profile: str = "", seed: int = 0) -> Checkpoint:
    """Return the checkpoint of a name.

    `name`: "smollm2-135m"; a folder with config.json and *.safetensors; a .gguf file; a preset ("random-250m",
    "random-moe") or any model profile, with random weights of that shape. `profile`: a model profile in place of the
    one that follows from the checkpoint's own configuration. `seed`: of random weights.

    Raises InfercastError for an unknown name, NotModelledError for a model that the engine does not compute.
    """
    model = load_model(profile) if profile else None
    path = Path(name)
    if name == SMOLLM2:
        return gguf_checkpoint(smollm2_path(), model)
    if path.is_dir():
        return folder_checkpoint(path, model)
    if path.suffix == ".gguf":
        return gguf_checkpoint(path, model)
    return random_checkpoint(model or shape(name), seed)


def shape(name: str) -> Model:
    """Return the model profile of a preset or of the library; InfercastError for an unknown name."""
    preset = PRESETS / f"{name}.yaml"
    if preset.is_file():
        return Model.from_yaml(preset)
    try:
        return load_model(name)
    except InfercastError as error:
        known = [SMOLLM2, *(each.stem for each in PRESETS.glob("*.yaml")), *names(KIND)]
        given, because = f"checkpoint {name!r}", "no folder, GGUF file, preset or model profile has that name"
        raise InfercastError(given, because, nearest(name, known)) from error
