"""config.json files of state spaces alone and of families with newer successors; profiles say where each is from."""

from tests.support.model_configs import Config, sized

MAMBA: Config = {"conv_kernel": 4, "state_size": 16, "expand": 2, "use_bias": False, "use_conv_bias": True}
COUNTED_OLDER: dict[str, Config] = {
    "nemotron-mini-4b": sized("nemotron", "32 3072 24 8 9216 256000 4096", head_dim=128),
    "stablelm-2-1.6b": sized("stablelm", "24 2048 32 32 5632 100352 4096", use_qkv_bias=True),
    "starcoderbase-7b": {
        **{"model_type": "gpt_bigcode", "n_layer": 42, "n_embd": 4096, "n_head": 32, "n_inner": 16384},
        **{"vocab_size": 49152, "n_positions": 8192, "multi_query": True, "dtype": "bfloat16"},
    },
    "granite-3.1-3b-a800m": sized(
        "granitemoe",
        "32 1536 24 8 512 49155 131072",
        **{"tie_word_embeddings": True, "num_local_experts": 40, "num_experts_per_tok": 8},
    ),
    "mamba-2.8b": {
        **{"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280},
        **{"time_step_rank": 160, "intermediate_size": 5120, "dtype": "bfloat16", **MAMBA},
    },
    "falcon-mamba-7b": {
        **{"model_type": "falcon_mamba", "hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 65024},
        **{"time_step_rank": 256, "tie_word_embeddings": False, "max_position_embeddings": 8192},
        **{"dtype": "bfloat16", **MAMBA},
    },
    "mamba2-2.7b": {
        **{"model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50288},
        **{"num_heads": 80, "head_dim": 64, "n_groups": 1, "tie_word_embeddings": True, "dtype": "bfloat16"},
        **{**MAMBA, "state_size": 128},
    },
    "bamba-9b": sized(
        "bamba",
        "32 4096 32 8 14336 128000 262144",
        **{"attn_layer_indices": [9, 18, 27], "mamba_n_heads": 128, "mamba_d_head": "auto", "mamba_d_state": 128},
        **{"mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2},
    ),
    "cwm-32b": sized(
        "cwm",
        "64 6144 48 8 21504 128256 131072",
        **{"head_dim": 128, "sliding_window": 8192},
        layer_types=["full_attention", *["sliding_attention"] * 3] * 16,
    ),
    "k-exaone-236b-a23b": sized(
        "exaone_moe",
        "48 6144 64 8 18432 153600 262144",
        **{"head_dim": 128, "sliding_window": 128, "sliding_window_pattern": 4, "first_k_dense_replace": 1},
        **{"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "num_shared_experts": 1},
    ),
}
OTHER_OLDER: dict[str, Config] = {  # of repositories with code of their own
    "internlm-7b": sized("internlm", "32 4096 32 0 11008 103168 2048", bias=True),
    "baichuan-7b": sized("baichuan", "32 4096 32 0 11008 64000 4096"),
    "qwen1.5-14b": {  # whose layers Qwen-14B has
        **{"model_type": "qwen", "num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40},
        **{"intermediate_size": 27392, "vocab_size": 152064, "max_position_embeddings": 32768, "seq_length": 8192},
        "dtype": "bfloat16",
    },
}
