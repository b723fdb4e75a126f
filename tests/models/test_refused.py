"""Models that are refused by name: for their reason, and no model of the library among them."""

import pytest

from simulator.errors import NotModelledError, ProfileError
from simulator.models.model import KIND, checkpoint, load_model
from simulator.models.refused import REFUSED, refuse_known
from simulator.profile_folders import names
from tests.support.for_each import for_each


@pytest.mark.parametrize(
    ("name", "because"),
    [
        ("google/flan-t5-xxl", "an encoder and a decoder"),
        ("google-t5/t5-11b", "an encoder and a decoder"),
        ("google/mt5-xxl", "an encoder and a decoder"),
        ("bigscience/T0pp", "an encoder and a decoder"),
        ("facebook/bart-large-cnn", "an encoder and a decoder"),
        ("BAAI/bge-large-en-v1.5", "makes vectors of texts"),
        ("google-bert/bert-base-uncased", "makes vectors of texts"),
        ("sentence-transformers/all-MiniLM-L6-v2", "makes vectors of texts"),
        ("Qwen/Qwen3-Embedding-8B", "makes vectors or scores"),
        ("intfloat/e5-mistral-7b-instruct", "makes vectors or scores"),
        ("openai/whisper-large-v3", "speech"),
        ("stabilityai/stable-diffusion-xl-base-1.0", "draws images"),
        ("google/recurrentgemma-9b", "RG-LRU"),
        ("RWKV/rwkv-6-world-7b", "recurrence"),
        ("Zyphra/Zamba2-7B", "share one attention block"),
        ("google/paligemma2-3b-pt-224", "in both directions"),
        ("GSAI-ML/LLaDA-8B-Instruct", "diffusion"),
        ("microsoft/Phi-4-mini-flash-reasoning", "gated memories"),
        ("nvidia/Hymba-1.5B-Instruct", "head by head"),
        ("microsoft/VibeVoice-1.5B", "into speech"),
        ("microsoft/Phi-3-small-8k-instruct", "block-sparse"),
        ("deepseek-ai/DeepSeek-V4.1-Flash", "share compressed rows"),
        ("Qwen/Qwen3.8-Flash-Next", "n-grams"),
        ("meituan-longcat/LongCat-2.0", "n-grams"),
        ("thinkingmachines/Inkling", "relative positions"),
        ("mistralai/Mistral-Large-4-1T-A52B", "share a latent cache"),
        ("microsoft/bitnet-b1.58-2B-4T", "1.58 bits"),
        ("bge_m3", "makes vectors of texts"),
        ("flan-t5-xxl-GGUF", "an encoder and a decoder"),
    ],
)
def test_a_model_of_another_kind_is_refused_for_its_reason(name: str, because: str) -> None:
    for look_up in (load_model, checkpoint):
        with pytest.raises(NotModelledError, match=because) as refused:
            look_up(name)
        assert refused.value.given == f"model {name!r}"


def test_other_unknown_names_get_the_nearest_ones() -> None:
    for name in ("Qwen9-7B-Instruct", "t-rex", "fluxus-7b", "bertha-13b"):
        with pytest.raises(ProfileError, match="no model profile"):
            load_model(name)


@for_each("name", names(KIND))
def test_no_name_of_the_library_is_refused(name: str) -> None:
    for each in (name, *load_model(name).aliases):
        refuse_known(each)


def test_every_reason_is_one_clause_with_what_to_do() -> None:
    for because, remedy in REFUSED.values():
        assert because[0].islower()
        assert remedy.startswith(("Choose", "Give"))
        assert not (because + remedy).endswith(".")
