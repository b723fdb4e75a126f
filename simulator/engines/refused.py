"""Names that people type for an engine and that are no engine of the library, and why, in place of near names."""

import re

from simulator.errors import Setting, refuse_matching

NEAREST = (
    "Give an engine of the library (`infercast profiles engines`), and correct it by own measurements:"
    " `infercast calibrate --measured`"
)
GIVE_THAT = "Give that engine, say vllm, sglang or tensorrt-llm"
ROUTES = "it sends requests to replicas of an engine", f"{GIVE_THAT}, with --replicas and --router"
REFUSED = {  # why and what to do, by a pattern for the names in small letters
    r"vllm-?v0(-.*)?": ("V0 is vLLM's engine before 0.8", "Give vllm-0.5"),
    r"vllm-?v1(-.*)?": ("V1 is vLLM's engine from 0.8 on", "Give vllm, or vllm-0.8 and later"),
    r"(nvidia-)?(ai-)?dynamo(-.*)?|llm-d|kserve|aibrix|ray-?serve(-llm)?|ray-llm|litellm|skyserve": ROUTES,
    r"(nvidia-)?nim": ("it is a container with vLLM, SGLang or TensorRT-LLM, by model and device", GIVE_THAT),
    r"(nvidia-)?triton(-inference-server)?": (
        "it serves the engine of its backend",
        "Give that engine, tensorrt-llm or vllm",
    ),
    r"bentoml|openllm|(sagemaker-)?lmi|djl(-serving)?|xinference|fastchat|modelscope-swift|ms-swift|gpustack"
    r"|runpod-serverless": (
        "it starts an engine of others",
        GIVE_THAT,
    ),
    r"local-?ai|foundry-local|omlx|lemonade(-server)?|ramalama|text-generation-webui|oobabooga|exo"
    r"|docker-model-runner": (
        "it starts one of several engines",
        "Give that engine, say llama.cpp",
    ),
    r"tabbyapi|exllama-?v?3|exl3": ("ExLlamaV3 has no preset", f"Give exllamav2, its predecessor. {NEAREST}"),
    r"nano-vllm|aphrodite(-engine)?|fastvideo": (
        "it shares vLLM's ideas and not its kernels or releases",
        f"Give vllm, which it follows. {NEAREST}",
    ),
    r"vllm-?(ascend|omni|metal|mlx|gaudi|spyre|rbln|neuron|openvino|cpu-?xft)(-.*)?": (
        "vLLM's plugin for other hardware or models has kernels of its own and no preset",
        NEAREST,
    ),
    r"lmdeploy-pytorch(-.*)?": ("LMDeploy's PyTorch engine has no preset", "Give lmdeploy, its TurboMind engine"),
    r"sglang-?jax(-.*)?|jetstream(-.*)?|maxtext": ("no preset is of it", "Give vllm-tpu, the library's engine on TPUs"),
    r"openvino(-.*)?|ov-genai|optimum-intel|ipex(-.*)?|intel-extension-for-.*|bigdl(-llm)?|neural-speed"
    r"|itrex|xfastertransformer": (
        "Intel's runtime has no preset",
        f"Give llama.cpp, which runs on the same CPUs and GPUs. {NEAREST}",
    ),
    r"(onnx-?runtime|ort)(-.*)?|windows-ml|directml": ("no preset is of it", NEAREST),
    r"nxd-?i(nference)?|neuronx-distributed(-inference)?|optimum-neuron(-.*)?": (
        "no preset is of it",
        f"Give transformers-neuronx, its predecessor. {NEAREST}",
    ),
    r"(habana-|gaudi-)tgi|tgi-\(?(gaudi|habana)\)?": (
        "it serves the models of Optimum Habana by a scheduler of its own",
        f"Give optimum-habana. {NEAREST}",
    ),
    r"tt-inference-server|tt-vllm|vllm-\(?tt\)?": ("vLLM's scheduler runs tt-metal's models there", "Give tt-metal"),
    r"(fireworks|together|baseten|bedrock|deepinfra|nebius|openrouter|replicate|novita)(-?ai)?": (
        "it is a service that does not say which engine computes",
        GIVE_THAT,
    ),
    r"mistral\.?-?rs|candle(-.*)?|burn(-.*)?|ctranslate2|lightllm|scalellm|rtp-llm|mindie(-.*)?|xllm|ktransformers"
    r"|k-transformers|powerinfer(-.*)?|flexgen|fastflowlm|flm|tensorrt-edge-llm|edge-llm|litert(-lm)?|executorch"
    r"|nanoflow|sarathi(-serve)?|orca|distserve|petals|lorax|web-?llm|transformers\.js|mini-sglang|chitu|fastllm"
    r"|(paddlepaddle-)?fastdeploy|(amd-|rocm/)?atom|optimum-nvidia|megatron-core|nemo(-.*)?|ds4|zml|nexa(-.*)?"
    r"|mnn(-llm)?|qnn|coreml|core-ml|tinygrad|luminal|max(-engine)?|modular-max|friendli(-.*)?|fireattention": (
        "no preset is of it",
        NEAREST,
    ),
    r"autogptq|gptq(model)?|bitsandbytes|bnb|hqq|quanto|torchao|llm-compressor|unsloth": (
        "it makes or holds weights in a number format, and serves no requests",
        "Give the engine that loads them, and --weight-dtype",
    ),
    r"samba(flow|nova.*)|groq.*|cerebras.*|cann|neuware": (
        "its hardware has no engine here",
        "Compare with a device that has one (`infercast profiles hardware`)",
    ),
    r".*\b(internal|in-house|proprietary)\b.*": ("nobody else knows its rules and kernels", NEAREST),
}
PATTERNS = {re.compile(pattern): said for pattern, said in REFUSED.items()}


def refuse_known(name: str) -> None:
    """Raise NotModelledError, which says why, for a name that is known and no engine of the library; else return.

    >>> from simulator.errors import NotModelledError
    >>> try:
    ...     refuse_known("NVIDIA Dynamo")
    ... except NotModelledError as error:
    ...     error.because
    'it sends requests to replicas of an engine'
    """
    refuse_matching(Setting("engine", name), name.strip(), PATTERNS)
