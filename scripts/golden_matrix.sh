#!/usr/bin/env bash
# Every reference model in every legal division of its batches. Sourced by
# ./weft test.

# Where the reference models lie, a folder each: with Hugging Face's names, of
# batches of four, and with Megatron-Core's, which have microbatches of their own.
REFERENCE_MODELS="${WEFT_REFERENCE_MODELS:-$WEFT_ROOT/../shared/golden}"
MEGATRON_MODELS="${WEFT_MEGATRON_MODELS:-$WEFT_ROOT/../shared/golden-megatron}"

# Arguments of ./weft golden, a run a line: MODEL and flags.
golden_runs() {
  if [[ -d "$REFERENCE_MODELS" ]]; then hugging_face_runs; fi
  if [[ -d "$MEGATRON_MODELS" ]]; then megatron_runs; fi
}

megatron_runs() {
  local order model
  for order in sequential combined_1f1b; do
    for model in aux_softmax_pre aux_softmax_post capacity_drop capacity_pad \
      global_aux hybrid_mamba hybrid_mlp_attn mla_moe mla_moe_yarn \
      mtp1 padding_mask per_token seq_aux_sigmoid_bias shared_gate \
      tied_embeddings; do
      echo "$model --schedule=$order --world=1"
      # A capacity is of the tokens of a rank, and one of the microbatches of
      # global_aux and of per_token is a single sequence.
      case "$model" in
      capacity_* | global_aux | per_token) continue ;;
      esac
      echo "$model --schedule=$order --world=2 --ep=2"
    done
  done
}

hugging_face_runs() {
  local order model size
  for model in mixtral qwen3_moe; do
    echo "$model --compute=bf16 --world=1"
    echo "$model --compute=bf16 --world=2 --ep=2"
  done
  for order in sequential combined_1f1b; do
    for model in llama mixtral qwen2_moe qwen3_moe; do
      for size in 1 2 4; do
        echo "$model --schedule=$order --world=1 --microbatch=$size"
      done
      for size in 1 2; do
        echo "$model --schedule=$order --world=2 --microbatch=$size"
        if [[ "$model" == llama ]]; then continue; fi
        echo "$model --schedule=$order --world=2 --ep=2 --microbatch=$size"
      done
      if [[ "$model" == llama ]]; then continue; fi
      echo "$model --schedule=$order --world=4 --ep=2"
      # Six experts cannot be divided over four ranks.
      if [[ "$model" == qwen2_moe ]]; then continue; fi
      echo "$model --schedule=$order --world=4 --ep=4"
    done
    for model in mamba2 bamba; do
      echo "$model --schedule=$order --world=1"
      echo "$model --schedule=$order --world=2"
    done
    for model in deepseek_v3 granitemoehybrid nemotron_h; do
      echo "$model --schedule=$order --world=1"
      echo "$model --schedule=$order --world=2 --ep=2"
      echo "$model --schedule=$order --world=4 --ep=2"
    done
  done
}

# golden_run FOLDER MODEL FLAGS...: prints what does not hold.
golden_run() {
  local folder="$1" model="$2" models="$REFERENCE_MODELS"
  shift 2
  if [[ ! -d "$models/$model" ]]; then models="$MEGATRON_MODELS"; fi
  weftctl --coordinator="$(address_of "$folder")" golden \
    --work "$folder/data" "$models/$model" "$@" \
    >"$folder/golden.txt" 2>&1 && return 0
  echo "golden $model $*:"
  cat "$folder/golden.txt"
  return 1
}

# Runs all of them on a cluster of four workers. Fails when a check does not
# hold, or when nothing ran.
golden_matrix() {
  source scripts/cluster.sh
  local folder="$WEFT_STATE/golden-matrix" line ran=0 rc=0
  local -a run
  if cluster_is_up "$folder"; then stop_cluster "$folder" || true; fi
  rm -rf "$folder"
  mkdir -p "$folder/data"
  build_cluster cpu && start_cluster "$folder" 4 cpu || return 1
  while read -r line; do
    read -r -a run <<<"$line"
    golden_run "$folder" "${run[@]}" </dev/null || rc=1
    ran=$((ran + 1))
  done < <(golden_runs)
  stop_cluster "$folder" || rc=1
  say "$ran runs of reference models"
  ((ran > 0 && rc == 0))
}
