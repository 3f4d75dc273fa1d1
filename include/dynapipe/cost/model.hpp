#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <dynapipe/core/error.hpp>
#include <dynapipe/cost/kinds.hpp>

namespace dynapipe {

/// Multi-latent attention (DeepSeek-AI, arXiv 2405.04434, section 2.1): keys and values come out of one narrow vector a
/// token, queries out of another. A head's queries and keys have `nope_dim` + `rope_dim` elements (without and with a
/// position; the keys' positioned part is one for all heads), its values `value_dim`.
struct latent_spec {
  std::int64_t q_rank = 0;  ///< width that queries are compressed to; 0: they are not
  std::int64_t kv_rank = 0;
  std::int64_t nope_dim = 0;
  std::int64_t rope_dim = 0;
  std::int64_t value_dim = 0;

  friend bool operator==(const latent_spec&, const latent_spec&) = default;
};

/// A transformer: decoder-only (`encoder_layers` 0) or encoder-decoder (both > 0, `cross_attention` true).
/// All sizes are numbers of elements. All layers of a kind are alike: with `experts` every feed-forward is a mixture.
struct model_spec {
  std::string name;
  std::int64_t encoder_layers = 0;
  std::int64_t decoder_layers = 0;
  bool cross_attention = false;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< heads of keys and values; fewer than `heads` for grouped-query attention
  std::int64_t head_dim = 0;  ///< unused with `latent`
  std::int64_t ffn = 0;       ///< of dense layers; unused, and 0 at will, with `experts`
  bool gated = false;         ///< feed-forward of three matrices (SwiGLU, GeGLU) and no dropout, instead of two (GELU)
  std::int64_t vocabulary = 0;
  bool tied_head = false;  ///< the head uses the embedding's matrix
  /// Mixture of experts, 0: none. A router of `hidden` x `experts` sends a token to `experts_per_token` of them; it
  /// also passes all `shared_experts`. Each is a feed-forward of `expert_ffn`, gated or not as `gated` says.
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t shared_experts = 0;
  std::int64_t expert_ffn = 0;
  std::int64_t window = 0;  ///< tokens that a token sees at most, itself included; 0: all before it
  std::optional<latent_spec> latent{};
  attention_mask attention = attention_mask::causal;
  attention_kernel kernel = attention_kernel::fused;
  dtype type = dtype::bf16;

  [[nodiscard]] bool encoder_decoder() const { return encoder_layers > 0; }
  [[nodiscard]] std::int64_t layers() const { return encoder_layers + decoder_layers; }
  /// The kind of this model's decoder layers.
  [[nodiscard]] layer_kind decoder_kind() const {
    return cross_attention ? layer_kind::cross_decoder : layer_kind::decoder;
  }
  /// Elements of one head's query and key, and of its value.
  [[nodiscard]] std::int64_t key_dim() const { return latent ? latent->nope_dim + latent->rope_dim : head_dim; }
  [[nodiscard]] std::int64_t value_dim() const { return latent ? latent->value_dim : head_dim; }
  /// Elements between the matrices of the feed-forwards that one token passes.
  [[nodiscard]] std::int64_t active_ffn() const {
    return experts > 0 ? (experts_per_token + shared_experts) * expert_ffn : ffn;
  }

  friend bool operator==(const model_spec&, const model_spec&) = default;
};

namespace presets {

[[nodiscard]] inline model_spec gpt(std::string name, std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  return {.name = std::move(name),
          .decoder_layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = hidden / heads,
          .ffn = 4 * hidden,
          .vocabulary = 51'200,
          .tied_head = true};
}

/// The T5 sizes of DynaPipe's evaluation (section 8): `layers` encoder and as many decoder layers of T5-11B's width.
[[nodiscard]] inline model_spec t5(std::string name, std::int64_t layers) {
  return {.name = std::move(name),
          .encoder_layers = layers,
          .decoder_layers = layers,
          .cross_attention = true,
          .hidden = 1024,
          .heads = 128,
          .kv_heads = 128,
          .head_dim = 128,
          .ffn = 65'536,
          .vocabulary = 32'128,
          .tied_head = true};
}

[[nodiscard]] inline model_spec gpt_3_35b() { return gpt("gpt-3.35b", 16, 4096, 32); }
[[nodiscard]] inline model_spec gpt_6_7b() { return gpt("gpt-6.7b", 32, 4096, 32); }
/// Width 5,120 (40 heads of 128); the published script's 5,140 is not a multiple of its heads.
[[nodiscard]] inline model_spec gpt_13b() { return gpt("gpt-13b", 40, 5120, 40); }
[[nodiscard]] inline model_spec gpt_29b() { return gpt("gpt-29b", 16, 12'288, 96); }
[[nodiscard]] inline model_spec t5_5_5b() { return t5("t5-5.5b", 12); }
[[nodiscard]] inline model_spec t5_11b() { return t5("t5-11b", 24); }
[[nodiscard]] inline model_spec t5_22b() { return t5("t5-22b", 48); }
[[nodiscard]] inline model_spec t5_44b() { return t5("t5-44b", 96); }

[[nodiscard]] inline model_spec llama(std::string name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                                      std::int64_t kv_heads, std::int64_t ffn, std::int64_t vocabulary) {
  return {.name = std::move(name),
          .decoder_layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = hidden / heads,
          .ffn = ffn,
          .gated = true,
          .vocabulary = vocabulary};
}

[[nodiscard]] inline model_spec llama_2_7b() { return llama("llama-2-7b", 32, 4096, 32, 32, 11'008, 32'000); }
[[nodiscard]] inline model_spec llama_3_8b() { return llama("llama-3-8b", 32, 4096, 32, 8, 14'336, 128'256); }
[[nodiscard]] inline model_spec llama_3_70b() { return llama("llama-3-70b", 80, 8192, 64, 8, 28'672, 128'256); }
[[nodiscard]] inline model_spec qwen2_5_7b() { return llama("qwen2.5-7b", 28, 3584, 28, 4, 18'944, 152'064); }

/// Mistral 7B as first published (arXiv 2310.06825): a sliding window of 4,096 tokens.
[[nodiscard]] inline model_spec mistral_7b() {
  model_spec model = llama("mistral-7b", 32, 4096, 32, 8, 14'336, 32'000);
  model.window = 4096;
  return model;
}
[[nodiscard]] inline model_spec qwen3_30b_a3b() {
  model_spec model = llama("qwen3-30b-a3b", 48, 2048, 32, 4, 0, 151'936);
  model.head_dim = 128;
  model.experts = 128;
  model.experts_per_token = 8;
  model.expert_ffn = 768;
  return model;
}
/// DeepSeek-V3 (arXiv 2412.19437), its first three layers taken to be mixtures as the other 58 are; without its layer
/// for predicting a second token.
[[nodiscard]] inline model_spec deepseek_v3() {
  model_spec model = llama("deepseek-v3", 61, 7168, 128, 128, 0, 129'280);
  model.head_dim = 128;
  model.experts = 256;
  model.experts_per_token = 8;
  model.shared_experts = 1;
  model.expert_ffn = 2048;
  model.latent = {.q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  return model;
}

/// All model presets.
[[nodiscard]] inline std::array<model_spec, 15> models() {
  return {gpt_3_35b(),   gpt_6_7b(),   gpt_13b(),    gpt_29b(),       t5_5_5b(),
          t5_11b(),      t5_22b(),     t5_44b(),     llama_2_7b(),    llama_3_8b(),
          llama_3_70b(), qwen2_5_7b(), mistral_7b(), qwen3_30b_a3b(), deepseek_v3()};
}

/// The model preset called `name`, if there is one.
[[nodiscard]] inline std::optional<model_spec> model(std::string_view name) {
  auto all = models();
  for (model_spec& preset : all)
    if (preset.name == name) return std::move(preset);
  return std::nullopt;
}

}  // namespace presets

/// Checks that `model` describes a transformer that costs can be computed for.
///
/// @throws error naming the field and its value, where a size is not positive or two fields contradict each other.
template <class Lazy = void>
void require_sound(const model_spec& model) {
  const auto fail = [&](const std::string& what) { throw error{"model '" + model.name + "': " + what}; };
  const auto within = [&](std::int64_t value, std::int64_t least, std::int64_t most, const char* field) {
    require_within("model '" + model.name + "': ", field, value, least, most);
  };
  within(model.decoder_layers, 1, 10'000, "decoder_layers");
  within(model.encoder_layers, 0, 10'000, "encoder_layers");
  within(model.hidden, 1, 1'000'000, "hidden");
  within(model.heads, 1, 1'000'000, "heads");
  within(model.kv_heads, 1, 1'000'000, "kv_heads");
  within(model.head_dim, 1, 1'000'000, "head_dim");
  within(model.heads * model.head_dim, 1, 10'000'000, "heads * head_dim");
  within(model.ffn, model.experts > 0 ? 0 : 1, 100'000'000, "ffn");
  within(model.vocabulary, 1, 100'000'000, "vocabulary");
  if (model.heads % model.kv_heads != 0)
    fail("heads (" + std::to_string(model.heads) + ") must be a multiple of kv_heads (" +
         std::to_string(model.kv_heads) + ")");
  if (model.cross_attention != (model.encoder_layers > 0))
    fail("cross_attention is for encoder-decoder models: it must be true exactly where encoder_layers is above 0");

  within(model.experts, 0, 1'000'000, "experts");
  if (model.experts > 0) {
    within(model.experts_per_token, 1, model.experts, "experts_per_token");
    within(model.shared_experts, 0, 1'000'000, "shared_experts");
    within(model.expert_ffn, 1, 100'000'000, "expert_ffn");
    within((model.experts + model.shared_experts) * model.expert_ffn, 1, 100'000'000,
           "(experts + shared_experts) * expert_ffn");
  } else {
    const auto unused = [&](std::int64_t value, const char* field) {
      if (value != 0) fail(std::string{field} + " must be 0 where experts is 0, it is " + std::to_string(value));
    };
    unused(model.experts_per_token, "experts_per_token");
    unused(model.shared_experts, "shared_experts");
    unused(model.expert_ffn, "expert_ffn");
  }

  within(model.window, 0, 1'000'000'000, "window");
  if (model.window > 0 && (model.encoder_decoder() || model.attention != attention_mask::causal))
    fail("a window (" + std::to_string(model.window) +
         ") is for decoder-only models with causal attention: it must be 0 here");

  if (model.latent) {
    const latent_spec& latent = *model.latent;
    within(latent.q_rank, 0, 1'000'000, "latent.q_rank");
    within(latent.kv_rank, 1, 1'000'000, "latent.kv_rank");
    within(latent.nope_dim, 1, 1'000'000, "latent.nope_dim");
    within(latent.rope_dim, 0, 1'000'000, "latent.rope_dim");
    within(latent.value_dim, 1, 1'000'000, "latent.value_dim");
    within(model.heads * model.key_dim(), 1, 10'000'000, "heads * (latent.nope_dim + latent.rope_dim)");
    within(model.heads * model.value_dim(), 1, 10'000'000, "heads * latent.value_dim");
    if (model.encoder_decoder()) fail("latent attention is for decoder-only models: encoder_layers must be 0 with it");
    if (model.kv_heads != model.heads)
      fail("kv_heads (" + std::to_string(model.kv_heads) + ") must equal heads (" + std::to_string(model.heads) +
           ") with latent attention");
  }
}

}  // namespace dynapipe
