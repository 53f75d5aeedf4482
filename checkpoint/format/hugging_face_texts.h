// A config.json of each family, for tests.
#ifndef WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_TEXTS_H_
#define WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_TEXTS_H_

#include <string>

#include "nlohmann/json.hpp"

namespace weft::checkpoint {

inline constexpr char kLlama[] = R"({
  "architectures": [
    "LlamaForCausalLM"
  ],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 1,
  "dtype": "float32",
  "eos_token_id": 2,
  "head_dim": 16,
  "hidden_act": "silu",
  "hidden_size": 64,
  "initializer_range": 0.02,
  "intermediate_size": 128,
  "max_position_embeddings": 128,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": 4,
  "num_hidden_layers": 3,
  "num_key_value_heads": 2,
  "pad_token_id": null,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-06,
  "rope_parameters": {
    "rope_theta": 10000.0,
    "rope_type": "default"
  },
  "tie_word_embeddings": false,
  "transformers_version": "5.17.0",
  "use_cache": true,
  "vocab_size": 160
})";

inline constexpr char kMixtral[] = R"({
  "architectures": [
    "MixtralForCausalLM"
  ],
  "attention_dropout": 0.0,
  "bos_token_id": 1,
  "dtype": "float32",
  "eos_token_id": 2,
  "head_dim": 16,
  "hidden_act": "silu",
  "hidden_size": 64,
  "initializer_range": 0.02,
  "intermediate_size": 48,
  "max_position_embeddings": 128,
  "model_type": "mixtral",
  "num_attention_heads": 4,
  "num_experts_per_tok": 2,
  "num_hidden_layers": 3,
  "num_key_value_heads": 2,
  "num_local_experts": 8,
  "output_router_logits": false,
  "pad_token_id": null,
  "rms_norm_eps": 1e-05,
  "rope_parameters": {
    "rope_theta": 1000000.0,
    "rope_type": "default"
  },
  "router_aux_loss_coef": 0.001,
  "router_jitter_noise": 0.0,
  "sliding_window": null,
  "tie_word_embeddings": false,
  "transformers_version": "5.17.0",
  "use_cache": true,
  "vocab_size": 160
})";

inline constexpr char kQwen2Moe[] = R"({
  "architectures": [
    "Qwen2MoeForCausalLM"
  ],
  "attention_dropout": 0.0,
  "bos_token_id": null,
  "decoder_sparse_step": 1,
  "dtype": "float32",
  "eos_token_id": null,
  "hidden_act": "silu",
  "hidden_size": 64,
  "initializer_range": 0.02,
  "intermediate_size": 96,
  "layer_types": [
    "full_attention",
    "full_attention",
    "full_attention"
  ],
  "max_position_embeddings": 128,
  "max_window_layers": 28,
  "mlp_only_layers": [],
  "model_type": "qwen2_moe",
  "moe_intermediate_size": 24,
  "norm_topk_prob": false,
  "num_attention_heads": 4,
  "num_experts": 6,
  "num_experts_per_tok": 3,
  "num_hidden_layers": 3,
  "num_key_value_heads": 4,
  "output_router_logits": false,
  "pad_token_id": null,
  "qkv_bias": true,
  "rms_norm_eps": 1e-06,
  "rope_parameters": {
    "rope_theta": 10000.0,
    "rope_type": "default"
  },
  "router_aux_loss_coef": 0.001,
  "shared_expert_intermediate_size": 40,
  "sliding_window": 0,
  "tie_word_embeddings": false,
  "transformers_version": "5.17.0",
  "use_cache": true,
  "use_sliding_window": false,
  "vocab_size": 160
})";

inline constexpr char kQwen3Moe[] = R"({
  "architectures": [
    "Qwen3MoeForCausalLM"
  ],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": null,
  "decoder_sparse_step": 1,
  "dtype": "float32",
  "eos_token_id": null,
  "head_dim": 32,
  "hidden_act": "silu",
  "hidden_size": 64,
  "initializer_range": 0.02,
  "intermediate_size": 96,
  "max_position_embeddings": 128,
  "mlp_only_layers": [],
  "model_type": "qwen3_moe",
  "moe_intermediate_size": 24,
  "norm_topk_prob": true,
  "num_attention_heads": 4,
  "num_experts_per_tok": 4,
  "num_hidden_layers": 3,
  "num_key_value_heads": 2,
  "num_local_experts": 8,
  "output_router_logits": false,
  "pad_token_id": null,
  "rms_norm_eps": 1e-06,
  "rope_parameters": {
    "rope_theta": 10000.0,
    "rope_type": "default"
  },
  "router_aux_loss_coef": 0.001,
  "sliding_window": null,
  "tie_word_embeddings": false,
  "transformers_version": "5.17.0",
  "use_cache": true,
  "use_sliding_window": false,
  "vocab_size": 160
})";

// `text` with the fields of `patch` set or, where it has null, taken away.
inline std::string With(const char* text, const std::string& patch) {
  nlohmann::json object = nlohmann::json::parse(text);
  object.merge_patch(nlohmann::json::parse(patch));
  return object.dump();
}

// `text` with one field set, which may be null.
inline std::string WithField(const char* text, const char* name,
                             const std::string& value) {
  nlohmann::json object = nlohmann::json::parse(text);
  object[name] = nlohmann::json::parse(value);
  return object.dump();
}

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_TEXTS_H_
