// A config.json of DeepSeek-V3 and of each family with Mamba-2, for tests.
#ifndef WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_HYBRID_TEXTS_H_
#define WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_HYBRID_TEXTS_H_

namespace weft::checkpoint {

inline constexpr char kDeepseekV3[] = R"({
  "architectures": [
    "DeepseekV3ForCausalLM"
  ],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 0,
  "dtype": "float32",
  "eos_token_id": 1,
  "first_k_dense_replace": 1,
  "head_dim": 16,
  "hidden_act": "silu",
  "hidden_size": 64,
  "initializer_range": 0.02,
  "intermediate_size": 112,
  "kv_lora_rank": 32,
  "max_position_embeddings": 128,
  "model_type": "deepseek_v3",
  "moe_intermediate_size": 24,
  "n_group": 4,
  "n_routed_experts": 8,
  "n_shared_experts": 1,
  "norm_topk_prob": true,
  "num_attention_heads": 4,
  "num_experts_per_tok": 3,
  "num_hidden_layers": 3,
  "num_key_value_heads": 4,
  "num_nextn_predict_layers": 1,
  "pad_token_id": null,
  "pretraining_tp": 1,
  "q_lora_rank": 48,
  "qk_head_dim": 40,
  "qk_nope_head_dim": 24,
  "qk_rope_head_dim": 16,
  "rms_norm_eps": 1e-06,
  "rope_interleave": true,
  "rope_parameters": {
    "rope_theta": 10000.0,
    "rope_type": "default"
  },
  "routed_scaling_factor": 2.5,
  "tie_word_embeddings": false,
  "topk_group": 2,
  "transformers_version": "5.17.0",
  "use_cache": true,
  "v_head_dim": 20,
  "vocab_size": 160
})";

inline constexpr char kMamba2[] = R"({
  "architectures": [
    "Mamba2ForCausalLM"
  ],
  "bos_token_id": 0,
  "chunk_size": 8,
  "conv_kernel": 4,
  "dtype": "float32",
  "eos_token_id": 2,
  "expand": 2,
  "head_dim": 16,
  "hidden_act": "silu",
  "hidden_size": 64,
  "initializer_range": 0.1,
  "layer_norm_epsilon": 1e-05,
  "model_type": "mamba2",
  "n_groups": 1,
  "num_heads": 8,
  "num_hidden_layers": 2,
  "pad_token_id": 1,
  "rescale_prenorm_residual": false,
  "residual_in_fp32": true,
  "state_size": 16,
  "tie_word_embeddings": false,
  "time_step_floor": 0.0001,
  "time_step_limit": [
    0.0,
    {"__float__": "Infinity"}
  ],
  "time_step_max": 0.1,
  "time_step_min": 0.001,
  "time_step_rank": 4,
  "transformers_version": "5.17.0",
  "use_bias": false,
  "use_cache": true,
  "use_conv_bias": true,
  "vocab_size": 160
})";

inline constexpr char kBamba[] = R"({
  "architectures": [
    "BambaForCausalLM"
  ],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "attn_layer_indices": [
    1
  ],
  "bos_token_id": 1,
  "dtype": "float32",
  "eos_token_id": 2,
  "hidden_act": "silu",
  "hidden_size": 64,
  "initializer_range": 0.02,
  "intermediate_size": 96,
  "mamba_chunk_size": 8,
  "mamba_conv_bias": true,
  "mamba_d_conv": 4,
  "mamba_d_head": 16,
  "mamba_d_state": 16,
  "mamba_expand": 2,
  "mamba_n_groups": 1,
  "mamba_n_heads": 8,
  "mamba_proj_bias": false,
  "max_position_embeddings": 128,
  "mlp_bias": false,
  "model_type": "bamba",
  "num_attention_heads": 4,
  "num_hidden_layers": 3,
  "num_key_value_heads": 2,
  "num_logits_to_keep": 1,
  "pad_token_id": null,
  "partial_rotary_factor": 0.5,
  "rms_norm_eps": 1e-05,
  "rope_parameters": {
    "partial_rotary_factor": 0.5,
    "rope_theta": 10000.0,
    "rope_type": "default"
  },
  "tie_word_embeddings": false,
  "time_step_limit": [
    0.0,
    {"__float__": "Infinity"}
  ],
  "transformers_version": "5.17.0",
  "use_cache": true,
  "vocab_size": 160,
  "z_loss_coefficient": 0.0
})";

inline constexpr char kGraniteMoeHybrid[] = R"({
  "architectures": [
    "GraniteMoeHybridForCausalLM"
  ],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "attention_multiplier": 1.0,
  "bos_token_id": 1,
  "dtype": "float32",
  "embedding_multiplier": 1.0,
  "eos_token_id": 2,
  "hidden_act": "silu",
  "hidden_size": 64,
  "initializer_range": 0.02,
  "intermediate_size": 32,
  "layer_types": [
    "linear_attention",
    "full_attention",
    "linear_attention"
  ],
  "logits_scaling": 1.0,
  "mamba_chunk_size": 8,
  "mamba_conv_bias": true,
  "mamba_d_conv": 4,
  "mamba_d_head": 16,
  "mamba_d_state": 16,
  "mamba_expand": 2,
  "mamba_n_groups": 1,
  "mamba_n_heads": 8,
  "mamba_proj_bias": false,
  "max_position_embeddings": 128,
  "model_type": "granitemoehybrid",
  "num_attention_heads": 4,
  "num_experts_per_tok": 3,
  "num_hidden_layers": 3,
  "num_key_value_heads": 2,
  "num_local_experts": 8,
  "output_router_logits": false,
  "pad_token_id": null,
  "position_embedding_type": null,
  "residual_multiplier": 1.0,
  "rms_norm_eps": 1e-06,
  "rope_parameters": {
    "rope_theta": 10000.0,
    "rope_type": "default"
  },
  "router_aux_loss_coef": 0.001,
  "shared_intermediate_size": 48,
  "tie_word_embeddings": false,
  "time_step_limit": [
    0.0,
    {"__float__": "Infinity"}
  ],
  "transformers_version": "5.17.0",
  "use_cache": true,
  "vocab_size": 160
})";

inline constexpr char kNemotronH[] = R"({
  "architectures": [
    "NemotronHForCausalLM"
  ],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 1,
  "chunk_size": 8,
  "conv_kernel": 4,
  "dtype": "float32",
  "eos_token_id": 2,
  "expand": 2,
  "head_dim": 16,
  "hidden_dropout": 0.0,
  "hidden_size": 64,
  "initializer_range": 0.02,
  "intermediate_size": 96,
  "layer_norm_epsilon": 1e-05,
  "layers_block_type": [
    "linear_attention",
    "moe",
    "full_attention",
    "mlp",
    "linear_attention",
    "moe"
  ],
  "mamba_head_dim": 16,
  "mamba_hidden_act": "silu",
  "mamba_num_heads": 8,
  "mamba_proj_bias": false,
  "mamba_ssm_cache_dtype": "float32",
  "max_position_embeddings": 128,
  "mlp_bias": false,
  "mlp_hidden_act": "relu2",
  "model_type": "nemotron_h",
  "moe_intermediate_size": 24,
  "moe_latent_size": null,
  "moe_shared_expert_intermediate_size": 40,
  "moe_shared_expert_overlap": true,
  "mtp_layers_block_type": [
    "full_attention",
    "moe"
  ],
  "n_group": 1,
  "n_groups": 2,
  "n_routed_experts": 8,
  "n_shared_experts": 1,
  "norm_topk_prob": true,
  "num_attention_heads": 4,
  "num_experts_per_tok": 3,
  "num_key_value_heads": 2,
  "num_logits_to_keep": 1,
  "num_nextn_predict_layers": 0,
  "pad_token_id": 0,
  "rescale_prenorm_residual": true,
  "residual_in_fp32": false,
  "routed_scaling_factor": 2.5,
  "sliding_window": null,
  "ssm_state_size": 16,
  "tie_word_embeddings": false,
  "time_step_floor": 0.0001,
  "time_step_limit": [
    0.0,
    {"__float__": "Infinity"}
  ],
  "time_step_max": 0.1,
  "time_step_min": 0.001,
  "topk_group": 1,
  "transformers_version": "5.17.0",
  "use_bias": false,
  "use_cache": true,
  "use_conv_bias": true,
  "use_mamba_kernels": true,
  "vocab_size": 160
})";

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_HYBRID_TEXTS_H_
