"""Spellings of an engine's name: what sources, registries of containers and people put around it, or leave out."""

import re
from collections.abc import Iterable

VENDOR = re.compile(
    r"(?:nim|nvidia|amd|intel|apple|google|aws|hugging ?face|hf|ggml(?:-org)?|rocm|cuda)[\s/-]+", re.IGNORECASE
)
PARTS = re.compile(r"\s*[,;+/()|&]\s*|\s+(?:on|via|with)\s+", re.IGNORECASE)  # between what runs together
BACKENDS = {  # names that say by a word behind them which other engine computes, and that engine's name
    r"(llama\.?[ _-]?cpp|llama-(bench|server)|lm ?studio|kobold ?cpp)\b.*\bvulkan\b.*": "llama.cpp vulkan",
    r"(lm ?studio|ollama)\b.*\bmlx\b.*": "mlx-lm",
    r"vllm\b.*\btpu\b.*|tpu[ _-]inference\b.*": "vllm tpu",
    r"vllm[ _-]*\(?v1\)?(?=$|[^\w.])(.*)": r"vllm\1",  # its engine from 0.8 on, the only one in newer releases
    r"vllm[ _]+\(?rocm\)?(.*)": r"vllm\1",
    r"vllm-rocm[\s-]+(?!0\.6\b)(v?\d.*)": r"vllm \1",  # vllm-rocm-0.6 is the preset of AMD's images with V0
}
STACKS = ("cuda",)  # names of what engines stand on, for an engine that a source does not name otherwise
_BACKENDS = {re.compile(pattern, re.IGNORECASE): name for pattern, name in BACKENDS.items()}
BESIDE = re.compile(  # what an engine stands on, whose release is not its own
    r"\b(?:cuda|rocm|cudnn|(?:py)?torch|python|rhel|ubuntu|driver|jetpack|macos|triton|flash[ -]?infer|"
    r"flash[ -]?att(?:entio)?n|lmcache|nccl|ray(?: serve)?|docker|transformers)[\s:=_-]*v?\d[\d.]*",
    re.IGNORECASE,
)
BUILD = re.compile(  # of llama.cpp: b6123, build 6123, or a number that is no year, alone or in brackets behind a hash
    r"\bb(?:uild)?[\s:#=_-]*(\d{4,})\b|(?:^\s*(?:version:?\s*)?|[0-9a-f]{7,}\s*\()(?!20\d\d\b)(\d{4,5})(?![\w.-])"
)
CONTAINER = re.compile(r"(?<![\w.])(2[3-9])\.(0[1-9]|1[0-2])(?=-py3|$|[^\w.])")  # NVIDIA's: year and month


def redirected(name: str) -> str:
    """Return the engine that computes where a word behind a name says it, else the name.

    >>> redirected("llama.cpp (Vulkan)"), redirected("vLLM V1 0.10"), redirected("SGLang")
    ('llama.cpp vulkan', 'vllm 0.10', 'SGLang')
    """
    for pattern, engine in _BACKENDS.items():
        if found := pattern.fullmatch(name.strip()):
            return found.expand(engine)
    return name.strip()


def spelt(name: str, known: Iterable[str]) -> tuple[str, str]:
    """Return the known name that an engine's name begins with, the longest one, and what follows it; "" for none.

    Spaces, hyphens and underscores do not count, also between a name and its release. Where no known name begins it, a
    vendor before it is left out, and then its parts are tried, one after the other. What engines stand on is an engine
    where nothing else is named.

    >>> spelt("TensorRT LLM 1.2", ("tensorrt", "tensorrt-llm"))
    ('tensorrt-llm', ' 1.2')
    >>> spelt("JetPack 6.0, TensorRT 10.1", ("tensorrt",)), spelt("lmsysorg/sglang:v0.5.5", ("sglang",))
    (('tensorrt', ' 10.1'), ('sglang', ':v0.5.5'))
    >>> spelt("vllm-0.10.2", ("vllm",)), spelt("nvcr.io/nvidia/tensorrt-llm/release:1.1.0", ("tensorrt-llm",))
    (('vllm', '0.10.2'), ('tensorrt-llm', '/release:1.1.0'))
    """
    patterns = {alias: re.compile(_loosely(alias), re.IGNORECASE) for alias in known}
    stack = ""
    for part in _parts(name):
        ends = {alias: found.end() for alias, each in patterns.items() if (found := each.match(part))}
        longest = max(ends, key=lambda alias: (ends[alias], alias), default="")
        if longest and longest not in STACKS:
            rest = name[name.index(part) + ends[longest] :]
            return longest, re.sub(r"^[_-]+(?=[vb]?\d)", "", rest)
        stack = stack or longest
    return stack, ""


def _loosely(alias: str) -> str:
    words = r"[\s_-]*".join(re.escape(each) for each in re.split(r"[\s_-]+", alias))
    return words + r"(?![a-z])"


def _parts(name: str) -> tuple[str, ...]:
    without = VENDOR.sub("", name, count=1) if VENDOR.match(name) else name
    return tuple(dict.fromkeys((name, without, *filter(None, PARTS.split(without)))))


def stated_release(engine: str, text: str) -> str:
    """Return the release of an engine that a text states, "" for none; engines of llama.cpp's have builds (b5921).

    >>> stated_release("vllm", "rocm7.0.0_vllm_0.11.1_20"), stated_release("vllm", "0.4.3+rocm614, PyTorch 2.3.0")
    ('0.11.1', '0.4.3')
    >>> stated_release("llama.cpp", "LM Studio 0.3.20"), stated_release("llama.cpp", "build: 6123 (79c1160b)")
    ('', 'b6123')
    >>> stated_release("llama.cpp", "6123"), stated_release("llama.cpp", "79c1160b (6123)")
    ('b6123', 'b6123')
    """
    plain = CONTAINER.sub("", BESIDE.sub("", text.lower()))
    if "llama.cpp" in engine:
        found = BUILD.search(plain)
        return f"b{found[1] or found[2]}" if found else ""
    found = re.search(rf"(?:(?<![\w.-])v?|{re.escape(engine)}[_-])(\d+(?:\.\d+)+)", plain)
    return found[1] if found else ""


def stated_date(text: str) -> str:
    """Return the most exact date in a text, or that of a container of NVIDIA's in it; "" for none.

    >>> stated_date("latest (2026-01) 2026-01-20"), stated_date("25.09-py3"), stated_date("nightly_20260801")
    ('2026-01-20', '2025-09', '2026-08-01')
    """
    if container := CONTAINER.search(text):
        return f"20{container[1]}-{container[2]}"
    together = re.sub(r"(?<!\d)(20\d\d)(0[1-9]|1[0-2])([0-3]\d)(?!\d)", r"\1-\2-\3", text)
    return max(re.findall(r"20\d\d(?:-\d\d){0,2}", together), key=len, default="")
