"""Parameters of every config in model_configs.py as transformers itself counts them, on torch's meta device."""

import json
from importlib import import_module

import pytest

from simulator.models.hf_importer import model_from_config
from simulator.models.hf_recent_types import RECENT_TYPES
from simulator.models.model import Model
from tests.support.model_configs import CONFIGS
from tests.support.older_configs import COUNTED_OLDER
from tests.support.sharing_configs import COUNTED

pytestmark = pytest.mark.slow
SAME_IN_ALL_LAYERS = ("moe_topk", "moe_intermediate_size", "num_shared_expert")
BY_ANOTHER_NAME = {
    "kimi_k2": "deepseek_v3",
    "mimo": "qwen2",
    "internlm2": "llama",
}  # models of other repositories, with these layers


NOT_THERE = {"kimi-k3"}  # its kimi_linear has no experts in a narrower vector; test_model.py has the published count
EVERY = {name: config for name, config in (CONFIGS | COUNTED | COUNTED_OLDER).items() if name not in NOT_THERE}


@pytest.mark.parametrize("name", EVERY)
def test_transformers_counts_the_same_parameters(name: str) -> None:
    torch = pytest.importorskip("torch", reason="the oracle builds the model with it")
    transformers = pytest.importorskip("transformers", reason="it is the oracle")
    ours = Model.from_mapping(model_from_config(EVERY[name], name, name), name).parameters
    config = dict(EVERY[name].get("text_config", EVERY[name]))
    for key in SAME_IN_ALL_LAYERS:  # transformers takes one number for all layers
        config[key] = config[key][0] if isinstance(config.get(key), list) else config.get(key)
    left_out = {"quantization_config", "model_type", "dtype"}
    left_out |= {"num_hidden_layers"} if "hybrid_override_pattern" in config else set()
    given = {key: value for key, value in config.items() if key not in left_out}
    stated = {key: value for key, value in given.items() if value is not None or key == "q_lora_rank"}
    kind = BY_ANOTHER_NAME.get(config["model_type"], config["model_type"])
    built, whole = transformers.CONFIG_MAPPING[kind](**stated), transformers.AutoModelForCausalLM
    known = type(built) in whole._model_mapping  # text parts of models with images have no class with a head
    make = whole.from_config if known else transformers.AutoModel.from_config
    if kind == "step3p5":  # no auto class has it
        make = import_module("transformers.models.step3p7.modeling_step3p7").Step3p7TextModel
    with torch.device("meta"):
        model = make(built)
    head = 0 if known or config.get("tie_word_embeddings") else built.vocab_size * built.hidden_size
    biases = [each.numel() for key, each in model.named_buffers() if "correction" in key or "expert_bias" in key]
    counted = [each.numel() for key, each in model.named_parameters() if "act_fn" not in key]  # Apertus: two a layer
    assert sum(counted) + sum(biases) + head == ours


HEAD_DIM = {"ministral", "hunyuan_vl_text"}  # whose class default, None, their own modelling files do not take


NO_CLASS = {"granite4_vision_text"}  # that an auto class knows


@pytest.mark.parametrize("kind", sorted({*RECENT_TYPES, "bailing_hybrid"} - NO_CLASS))
def test_transformers_counts_the_same_parameters_of_its_class_defaults(kind: str) -> None:
    torch = pytest.importorskip("torch", reason="the oracle builds the model with it")
    transformers = pytest.importorskip("transformers", reason="it is the oracle")
    built = transformers.CONFIG_MAPPING[kind](**({"head_dim": 128} if kind in HEAD_DIM else {}))
    config = json.loads(built.to_json_string(use_diff=False)) | {"dtype": "bfloat16"}
    ours = Model.from_mapping(model_from_config(config, kind, kind), kind).parameters
    whole = transformers.AutoModelForCausalLM
    known = type(built) in whole._model_mapping
    with torch.device("meta"):
        model = (whole if known else transformers.AutoModel).from_config(built)
    head = 0 if known or built.tie_word_embeddings else built.vocab_size * built.hidden_size
    biases = [each.numel() for key, each in model.named_buffers() if "correction" in key or "expert_bias" in key]
    counted = [each.numel() for key, each in model.named_parameters() if "act_fn" not in key]  # Apertus: two a layer
    assert sum(counted) + sum(biases) + head == ours
