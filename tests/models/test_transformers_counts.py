"""Parameters of every config in model_configs.py as transformers itself counts them, on torch's meta device."""

import pytest

from simulator.models.hf_importer import model_from_config
from simulator.models.model import Model
from tests.support.model_configs import CONFIGS

pytestmark = pytest.mark.slow
SAME_IN_ALL_LAYERS = ("moe_topk", "moe_intermediate_size", "num_shared_expert")


@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_counts_the_same_parameters(name: str) -> None:
    torch = pytest.importorskip("torch", reason="the oracle builds the model with it")
    transformers = pytest.importorskip("transformers", reason="it is the oracle")
    config = dict(CONFIGS[name])
    ours = Model.from_mapping(model_from_config(config, name, name), name).parameters
    for key in SAME_IN_ALL_LAYERS:  # transformers takes one number for all layers
        config[key] = config[key][0] if isinstance(config.get(key), list) else config.get(key)
    left_out = {"quantization_config", "model_type", "dtype"}
    left_out |= {"num_hidden_layers"} if "hybrid_override_pattern" in config else set()
    given = {key: value for key, value in config.items() if key not in left_out}
    stated = {key: value for key, value in given.items() if value is not None or key == "q_lora_rank"}
    built = transformers.CONFIG_MAPPING[config["model_type"]](**stated)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(built)
    corrections = sum(each.numel() for key, each in model.named_buffers() if "correction" in key)
    assert sum(each.numel() for each in model.parameters()) + corrections == ours
