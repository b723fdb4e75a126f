"""Models that people ask for by name and that infercast does not model, and why: in place of a list of near names."""

import re

from simulator.errors import Setting, refuse_matching

OTHERS = "Choose a model that writes text token by token: `infercast profiles` lists all"
LAYERS = "Choose another model: `infercast profiles` lists all"
VECTORS = "Give the language model whose layers it has, with --output-len 1: TTFT is then the time of a text"
REFUSED = {  # why and what to do, by a pattern for the names without their organisation, in small letters
    r"(flan-|m|u|long-|code|byt|fastchat-)?t5(gemma)?\b.*|ul2|flan-ul2|aya-101|t0pp|mt0-.*"
    r"|(m?bart|pegasus|nllb|m2m100|opus-mt|madlad400)\b.*": (
        "it is an encoder and a decoder, and decoders alone are modelled",
        OTHERS,
    ),
    r"((distil|al|modern-?|sci|fin)?bert|(xlm-)?roberta|deberta|electra|gte-(small|base|large)|e5-(small|base|large))\b.*"
    r"|(bge|m3e|all-minilm|all-mpnet|nomic-embed|jina-embeddings|mxbai-embed|embeddinggemma|multilingual-e5)\b.*": (
        "it makes vectors of texts and writes none",
        OTHERS,
    ),
    r".*\b(embedding|reranker)\b.*|(gte-qwen|e5-mistral|stella|nv-embed|sfr-embedding).*": (
        "it makes vectors or scores of texts and writes none",
        VECTORS,
    ),
    r"(chat)?gpt-?(3\.5|4|4o|4\.1|4\.5|5)(-.*|o.*)?|chatgpt|o[134](-.*)?|(claude|gemini|grok-[3-9])\b.*"
    r"|qwen-?(2\.5|3(\.[567])?)?-(max|plus|turbo)\b.*": (
        "its weights are not published, so that only its maker runs it",
        "Choose an open model, say gpt-oss-120b: `infercast profiles models` lists them",
    ),
    r"(whisper|wav2vec|canary|parakeet|seamless)\b.*": ("it turns speech into text", OTHERS),
    r"(stable-diffusion|sdxl|flux)\b.*": ("it draws images", OTHERS),
    r"recurrentgemma\b.*|griffin\b.*": ("its recurrence, RG-LRU, is not modelled", LAYERS),
    r"(rwkv|v6-finch|v5-eagle|xlstm|retnet|stripedhyena|hyena)\b.*": ("its recurrence is not modelled", LAYERS),
    r"zamba2?\b.*": ("several of its layers share one attention block, which is not modelled", LAYERS),
    r"paligemma2?\b.*": ("its prompts attend in both directions, which is not modelled", LAYERS),
    r"(llada|llada2\.\d|dream-v0|wedlm|diffusiongemma|diffusion-gemma)\b.*": (
        "it writes by diffusion, not token by token",
        OTHERS,
    ),
    r"phi-4-mini-flash\b.*": ("its layers share gated memories, which is not modelled", LAYERS),
    r"hymba\b.*": ("its layers mix attention and Mamba head by head, which is not modelled", LAYERS),
    r"vibevoice\b.*": ("it turns text into speech", OTHERS),
    r"phi-3-small\b.*": ("its block-sparse attention is not modelled", LAYERS),
    r"deepseek-v4\.1\b.*": ("its layers share compressed rows and look up n-grams, which is not modelled", LAYERS),
    r"(qwen3\.8-flash-next|qwen4-exp)\b.*": ("its gated residuals and embeddings of n-grams are not modelled", LAYERS),
    r"longcat-2\.0\b.*": ("its sparse attention and embeddings of n-grams are not modelled", LAYERS),
    r"inkling\b.*": ("its attention to relative positions, beside short convolutions, is not modelled", LAYERS),
    r"mistral-large-4\b.*": ("its layers that share a latent cache are not modelled", LAYERS),
    r"bitnet\b.*": ("weights of 1.58 bits are no number format that is modelled", LAYERS),
}
PATTERNS = {re.compile(pattern): said for pattern, said in REFUSED.items()}


def refuse_known(name: str) -> None:
    """Raise NotModelledError, which says why, for a model that is known and not modelled; return for other names.

    >>> from simulator.errors import NotModelledError
    >>> try:
    ...     refuse_known("google/flan-t5-xxl")
    ... except NotModelledError as error:
    ...     error.because
    'it is an encoder and a decoder, and decoders alone are modelled'
    """
    refuse_matching(Setting("model", name), name.rstrip("/").rpartition("/")[2], PATTERNS)
