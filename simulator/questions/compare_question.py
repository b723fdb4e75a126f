"""A question about many deployments: devices by name, pattern or class; all layouts, formats and engines."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

from simulator.cost.candidate import Candidate
from simulator.cost.light_bounds import Demand, LightBounds
from simulator.deployment.layouts import running_layout
from simulator.deployment.memory_advice import TRIED_DEGREES
from simulator.deployment.offload import NO_OFFLOAD
from simulator.deployment.settings import Settings
from simulator.engines.engine import Engine, load_engine, usual_engine
from simulator.errors import InfercastError, ProfileError, nearest
from simulator.hardware.hardware import KIND, Hardware, load_hardware
from simulator.models.model import Model, checkpoint
from simulator.models.number_formats import number_format
from simulator.profile_folders import names
from simulator.questions.deployment_question import DeploymentQuestion, configured, loaded
from simulator.questions.words import comma_list, whole_numbers

ANY = "auto"
ALONE = ("integrated-gpu", "cpu")  # classes of devices that are not joined by tensor parallelism
CLASSES = {  # words for --hardware, and the device classes that they mean
    "cloud": ("datacenter-gpu", "accelerator"),
    "desktop": ("consumer-gpu", "workstation-gpu", "integrated-gpu"),
}
SERVING = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "ollama", "mlx-lm")  # --engine all
NO_ROOM = "memory"
NATIVE = {"fp8": "fp8", "nvfp4": "fp4", "int8": "int8"}  # formats of --weight-dtype auto, and the peaks that they need


class Candidates(NamedTuple):
    """All candidates of a question, those that the data sheet rules out, by reason, and what does not go together.

    Reasons: NO_ROOM, or the metric of the SLO that a lone request misses; each with the device.
    """

    candidates: list[Candidate]
    cut: Counter[tuple[str, str]]
    refused: list[InfercastError]


def devices(text: str) -> list[Hardware]:
    """Return the devices of a comma list of names, patterns ("h*") and classes; "all" is the whole library.

    Classes: cloud, desktop, device classes, vendors and families. Raises ProfileError for a part that fits none.

    >>> [each.id for each in devices("h200*,l40s")]
    ['h200-nvl', 'h200-sxm', 'l40s']
    """
    library = {each: loaded(load_hardware, each) for each in names(KIND)}
    found: dict[str, Hardware] = {}
    for part in comma_list(text, "--hardware"):
        chosen = {name: each for name, each in library.items() if _is_of(each, part.lower())}
        if not chosen and "*" in part:
            raise InfercastError(f"--hardware {part!r}", "no device fits it", nearest(part.strip("*"), library))
        found |= chosen or {part: _device(part, library)}
    return list(found.values())


def _device(name: str, library: dict[str, Hardware]) -> Hardware:
    """Return a device by name or path. Raises ProfileError for an unknown name, with the classes that may be named."""
    try:
        return loaded(load_hardware, name)
    except ProfileError as error:
        if name.endswith((".yaml", ".yml")):
            raise
        kinds = sorted({each.device_class for each in library.values()})
        vendors = sorted({each.vendor.lower() for each in library.values()})
        near = nearest(name, [*library, *CLASSES, *kinds, *vendors], most=0)
        hint = f"{near}. " if near.startswith("Nearest") else ""
        remedy = f"{hint}Classes: {', '.join([*CLASSES, *kinds])}; vendors: {', '.join(vendors)}"
        raise ProfileError(f"--hardware {name!r}", "no device and no class has that name", remedy) from error


def _is_of(hardware: Hardware, word: str) -> bool:
    own = (hardware.device_class, hardware.vendor.lower(), hardware.family)
    return word == "all" or not {*CLASSES.get(word, ()), word}.isdisjoint(own) or fnmatchcase(hardware.id, word)


@dataclass(frozen=True)
class CompareQuestion(DeploymentQuestion):
    """Which deployments `infercast compare` searches; the fields are those of `DeploymentQuestion`, left open.

    `hardware` also takes patterns and classes (`devices`). `tp`, `pp`, `ep`, `dp` "auto": every degree that fits.
    `weight_dtype` "auto": the checkpoint's own format, and narrower ones that a device multiplies natively. `engine`
    "auto": the one that a device's users run; "all": those of SERVING that run there.
    """

    hardware: str = "all"
    engine: str = ANY
    tp: str = ANY
    pp: str = ANY
    ep: str = ANY
    dp: str = ANY
    weight_dtype: str = ANY

    def options(self, asked: Demand) -> Candidates:
        """Return all candidates for some requests and an SLO; each is built, and may be refused, when it is looked at.

        Raises ProfileError for a name that no profile has, InfercastError for a list that cannot be read.
        """
        light = cache(lambda model, *dtypes: LightBounds(loaded(checkpoint, model)[0], dtypes, asked))
        found = Candidates([], Counter(), [])
        models = [loaded(checkpoint, each) for each in comma_list(self.model, "--model")]
        for hardware, (model, named) in product(devices(self.hardware), models):
            for engine, dtypes in self._served(model, named, hardware):
                try:
                    stored = running_layout(model, hardware, engine, dtypes=dtypes)
                    bounds = light(model.id, stored.weight_dtype, stored.cache_dtype)
                    device_s = bounds.device_s(hardware)
                except InfercastError as error:
                    found.refused.append(error)
                    continue
                degrees = self._degrees(hardware, has_experts=bounds.has_experts)
                for variant in self.variants:
                    build = partial(configured, variant, model, hardware, engine)
                    like = Candidate(model, hardware, stored, device_s, build, engine=engine.engine)
                    _add(found, bounds, like, degrees, variant[0])
        return found

    def _served(self, model: Model, named: str, hardware: Hardware) -> Iterator[tuple[Engine, tuple[str, str]]]:
        """Yield engines, each with number formats of weights and KV cache."""
        cached = comma_list(self.cache_dtype, "--cache-dtype") if self.cache_dtype else [""]
        for engine in self._engines(hardware):
            for weights, kept in product(self._formats(model, named, hardware, engine), cached):
                yield engine, (weights, kept)

    def _engines(self, hardware: Hardware) -> list[Engine]:
        usual = loaded(load_engine, usual_engine(hardware))
        if self.engine in ("", ANY):
            return [usual]
        if self.engine != "all":
            return [loaded(load_engine, each) for each in comma_list(self.engine, "--engine")]
        others = (loaded(load_engine, each) for each in SERVING)
        return [usual, *(each for each in others if each.id != usual.id and _runs(each, hardware))]

    def _formats(self, model: Model, named: str, hardware: Hardware, engine: Engine) -> Iterator[str]:
        """Yield formats of the weights, the checkpoint's own first: the others have fewer bits than it."""
        if self.weight_dtype != ANY:
            yield from comma_list(self.weight_dtype, "--weight-dtype") if self.weight_dtype else [named]
            return
        yield named
        if named or "safetensors" not in engine.reads[:1]:
            return
        own, peaks = number_format(model.weight_dtype).bits, hardware.peak_flops_per_s
        for stored, peak in NATIVE.items():
            if peak in peaks and number_format(stored).bits < own and not (stored == "int8" and "fp8" in peaks):
                yield stored

    def _degrees(self, hardware: Hardware, *, has_experts: bool) -> list[dict[str, Any]]:
        """Return the degrees to try: few devices first, then tensor parallelism alone first; tp x dp within a node."""
        tps, pps, eps, dps = (self._asked(name) for name in ("tp", "pp", "ep", "dp"))
        is_open = not tps
        dps = dps or list(TRIED_DEGREES if has_experts else TRIED_DEGREES[:1])
        most = 1 if hardware.device_class in ALONE else TRIED_DEGREES[-1]
        found = []
        for tp, pp, dp in product(tps or TRIED_DEGREES, pps or TRIED_DEGREES, dps):
            group = tp * dp
            if not (tps and pps) and group * pp > max([most, *tps]):
                continue
            if is_open and group > hardware.node_devices:
                continue
            usual = (group,) if dp > 1 else (1, group) if has_experts else (1,)
            found += [(group * pp, pp, dp, ep, tp) for ep in dict.fromkeys(eps or usual)]
        return [{"tp": tp, "pp": pp, "ep": ep, "dp": dp} for _, pp, dp, ep, tp in sorted(found)]

    def _asked(self, name: str) -> list[int]:
        """Return the degrees that were asked for; empty: whatever fits."""
        given = getattr(self, name)
        return [] if given in ("", ANY) else whole_numbers(given, f"--{name}")


def _runs(engine: Engine, hardware: Hardware) -> bool:
    try:
        engine.platform(hardware)
    except InfercastError:
        return False
    return True


def _add(
    found: Candidates, bounds: LightBounds, like: Candidate, degrees: list[dict[str, Any]], settings: Settings
) -> None:
    """Add a candidate for each layout of `degrees` that the data sheet leaves in; count the others by reason."""
    hardware = like.hardware
    drafts = settings.speculation.tokens if settings.speculation else 0
    misses = cache(partial(bounds.misses, hardware, draft_tokens=drafts))
    for each in degrees:
        layout = replace(like.layout, **each)
        has_room = bounds.weight_bytes <= layout.devices * float(hardware.memory_bytes)
        if not has_room and settings.offload == NO_OFFLOAD:
            found.cut[NO_ROOM, hardware.id] += 1
        elif metric := misses(layout.tp * layout.dp):
            found.cut[metric, hardware.id] += 1
        else:
            found.candidates.append(replace(like, layout=layout, order=len(found.candidates)))
