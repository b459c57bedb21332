"""Tiny random models of Transformers that call ``torch.einsum``: results and gradients are those of torch's own einsum.

The package's own tests of its models are neither in its wheel nor in its sdist.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

TEXT = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
POSITIONS = {"max_position_embeddings": 64}
SEQ2SEQ = {
    "vocab_size": 50,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "pad_token_id": 0,
}
MODELS: dict[str, dict[str, Any]] = {
    "XLNet": {"vocab_size": 50, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24},
    "Longformer": {**TEXT, **POSITIONS, "attention_window": 4, "pad_token_id": 0},
    "LED": {
        **SEQ2SEQ,
        "attention_window": 4,
        "max_encoder_position_embeddings": 64,
        "max_decoder_position_embeddings": 64,
    },
    "FNet": {**TEXT, **POSITIONS, "use_tpu_fourier_optimizations": True, "tpu_short_seq_length": 32},
    "BigBird": {**TEXT, **POSITIONS, "block_size": 2, "num_random_blocks": 1, "attention_type": "block_sparse"},
    "BigBirdPegasus": {**SEQ2SEQ, **POSITIONS, "block_size": 2, "num_random_blocks": 1},
    "Funnel": {
        "vocab_size": 50,
        "block_sizes": [1, 1],
        "d_model": 16,
        "n_head": 2,
        "d_head": 8,
        "d_inner": 24,
        "num_decoder_layers": 1,
    },
    "Mamba2": {
        "vocab_size": 50,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_heads": 4,
        "head_dim": 8,
        "state_size": 8,
        "n_groups": 2,
        "chunk_size": 8,
    },
    "LongT5": {
        "vocab_size": 50,
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 24,
        "num_layers": 2,
        "num_heads": 2,
        "local_radius": 3,
        "global_block_size": 4,
        "encoder_attention_type": "transient-global",
        "decoder_start_token_id": 0,
    },
    "Reformer": {
        "vocab_size": 50,
        "hidden_size": 16,
        "attention_head_size": 8,
        "num_attention_heads": 2,
        "feed_forward_size": 24,
        "attn_layers": ["local", "lsh"],
        "num_buckets": 2,
        "num_hashes": 1,
        "lsh_attn_chunk_length": 8,
        "local_attn_chunk_length": 8,
        "axial_pos_shape": [4, 8],
        "axial_pos_embds_dim": [8, 8],
        "hash_seed": 0,
        "hidden_dropout_prob": 0.0,
        "local_attention_probs_dropout_prob": 0.0,
        "is_decoder": True,
    },
    "ProphetNet": {
        "vocab_size": 50,
        "hidden_size": 16,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "num_encoder_attention_heads": 2,
        "num_decoder_attention_heads": 2,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "max_position_embeddings": 64,
    },
    "Cvt": {"embed_dim": [8, 16, 24], "num_heads": [1, 2, 3], "depth": [1, 2, 3]},
    "SamVision": {
        "hidden_size": 16,
        "output_channels": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 4,
        "window_size": 3,
        "global_attn_indexes": [1],
        "mlp_dim": 24,
        "use_rel_pos": True,
    },
    "Wav2Vec2Bert": {
        **{name: TEXT[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")},
        "intermediate_size": 24,
        "feature_projection_input_dim": 12,
        "position_embeddings_type": "relative_key",
        "conv_depthwise_kernel_size": 3,
    },
}
DECODERS = {"LED", "BigBirdPegasus", "LongT5", "ProphetNet"}


def inputs(name: str) -> dict[str, Any]:
    """A batch of two for a model."""
    if name in ("Cvt", "SamVision"):
        return {"pixel_values": torch.randn(2, 3, 32, 32)}
    if name == "Wav2Vec2Bert":
        return {"input_features": torch.randn(2, 20, 12)}
    tokens = torch.randint(1, 50, (2, 32))
    if name in DECODERS:
        return {"input_ids": tokens, "decoder_input_ids": tokens[:, :6]}
    if name == "XLNet":
        return {"input_ids": tokens, "token_type_ids": torch.randint(0, 2, (2, 32))}
    return {"input_ids": tokens}


def tensors(output: Any) -> list[torch.Tensor]:
    """The tensors of floats in a model's output."""
    return [each for each in output.to_tuple() if isinstance(each, torch.Tensor) and each.is_floating_point()]


def run(model: Any, arguments: dict[str, Any]) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """A model's results, and the gradients of their squares by its parameters."""
    torch.manual_seed(1)
    model.zero_grad()
    results = tensors(model(**arguments))
    sum(result.square().sum() for result in results).backward()
    gradients = {
        name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    return [result.detach() for result in results], gradients


@pytest.mark.parametrize("name", MODELS)
def test_results_and_gradients_are_those_of_the_frameworks_own_einsum(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**MODELS[name])
    model = getattr(transformers, f"{name}Model")(config).double().eval()
    if name == "Reformer":
        model.train()  # its backward pass is its own, and only of training
    arguments = {key: value.double() if value.is_floating_point() else value for key, value in inputs(name).items()}
    results, gradients = run(model, arguments)

    calls = []
    own = getattr(torch.einsum, "_einsumx_own", torch.einsum)

    def counted(*operands: Any) -> Any:
        calls.append(operands[0])
        return own(*operands)

    monkeypatch.setattr(torch, "einsum", counted)
    expected_results, expected_gradients = run(model, arguments)
    assert calls
    assert gradients
    torch.testing.assert_close(results, expected_results)
    torch.testing.assert_close(gradients, expected_gradients)
