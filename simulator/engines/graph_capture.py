"""Which CUDA graphs an engine captures, as its settings and defaults say; what they launch is CapturedGraphs."""

from typing import Annotated

from pydantic import Field

from simulator.engines.defaults import Default
from simulator.models.architecture import Architecture
from simulator.profile import Strict

Count = Annotated[int, Field(ge=0)]


class GraphCapture(Strict):
    """Sizes of the captured graphs; those of steps with prompts first. Each is a setting of `--set`, too."""

    graph_tokens: Count = 0  # of a step with prompts that a captured graph launches, at most
    graph_tokens_per_seq: Count = 0  # and for each of max_num_seqs at most; 0: no such bound
    piecewise_graphs: bool = False  # piecewise graphs launch steps with prompts (SGLang): CapturedGraphs
    graph_breakable: bool = False  # these need no torch.compile, and hold more models
    piecewise_of_vision: tuple[Architecture, ...] = ()  # of models with an encoder of images that these hold, too
    decode_graph_tokens: Count | None = None  # of a step of decodes alone that one graph launches
    decode_graph_seqs: tuple[Default, ...] = ()  # the same in sequences of a rank, by device, where it is not given
    graph_batch_sizes: tuple[int, ...] = ()  # sequences of a rank whose decodes one graph launches, and no others,
    graph_max_batch_size: Count = 0  # or those that TensorRT-LLM lists up to here; 0: it does not
    graph_padding: bool = False  # dummy requests fill a step of decodes up to the next of them (enable_padding)
    captures_max_num_seqs: bool = False  # and one of max_num_seqs, though it be none of the usual sizes
    routes_padding: bool = False  # rows that fill a step up to the size of its graph choose experts, too
