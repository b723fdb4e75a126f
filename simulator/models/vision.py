"""The vision encoder of a multimodal checkpoint: what it holds, and what its largest batch of images needs."""

from simulator.models.op_builders import PositiveInt
from simulator.profile import Number, Strict

ENCODER_BYTES = 2  # per number: encoders keep 16 bits in quantised checkpoints (ignore lists of ModelOpt, AWQ, GPTQ)


class VisionEncoder(Strict):
    """A vision transformer with `parameters` parameters, its projector included.

    `image_tokens`: tokens of the largest image in the language model; `patches_per_token`: patches that the encoder
    computes for each, before they are merged or pooled; `patch_numbers`: colours times pixels (and frames) of one;
    `gated`: feed-forward blocks have two columns for each of `intermediate`, one of which is a gate. `rotary`: queries
    and keys are rotated, in fp32.
    """

    parameters: Number
    hidden: PositiveInt
    intermediate: PositiveInt
    image_tokens: PositiveInt
    patches_per_token: PositiveInt
    patch_numbers: PositiveInt
    gated: bool = False
    rotary: bool = False

    def weight_bytes(self, tp: int) -> float:
        """Bytes on one device; vLLM shards encoders as it does the language model (mm_encoder_tp_mode: weights).

        A SigLIP of 416.9 million parameters and a projector of 4.4 million:

        >>> from simulator.models.model import load_model
        >>> load_model("gemma-3-12b").vision.weight_bytes(1)
        842581728.0
        """
        return self.parameters * ENCODER_BYTES / tp

    def peak_bytes(self, batch_tokens: int, tp: int) -> float:
        """Bytes alive at once in a batch of as many whole images as `batch_tokens` holds, one at least.

        Encoders run layer by layer: the images, residual, normed input, and what a feed-forward block has before and
        after its activation, p + 2 h + 2 i / tp (gated: 3 i / tp) numbers per patch (vLLM 0.33.0,
        model_executor/models/siglip.py; images are cast to the model's type, multimodal/processing/context.py).

        Rotary encoders have more in attention: what puts out queries, keys and values (3 h / tp), the first two of them
        in fp32 before and after their rotation (as much as 8 h), and in 16 bits again (2 h): p + 2 h + 13 h / tp (vLLM
        0.11.2, qwen2_vl.py, apply_rotary_pos_emb_vision, which glm4_1v.py and ernie45_vl.py have, too; moonvit.py,
        apply_rope; layers/rotary_embedding/llama4_vision_rope.py). Logs of Qwen3.6-27B have a peak of 2.3 GiB:

        >>> from simulator.models.model import load_model
        >>> load_model("gemma-3-12b").vision.peak_bytes(8192, 1) == 32 * 4096 * (588 + 2 * 1152 + 2 * 4304) * 2
        True
        >>> round(load_model("qwen3.6-27b").vision.peak_bytes(2048, 1) / 2**30, 2)
        2.3
        """
        images = max(1, batch_tokens // self.image_tokens)
        patches = images * self.image_tokens * self.patches_per_token
        columns = (3 if self.gated else 2) * self.intermediate
        if self.rotary:
            columns = max(columns, 13 * self.hidden)
        return patches * (self.patch_numbers + 2 * self.hidden + columns / tp) * ENCODER_BYTES
