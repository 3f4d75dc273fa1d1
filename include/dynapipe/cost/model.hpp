#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <dynapipe/core/error.hpp>
#include <dynapipe/cost/kinds.hpp>

namespace dynapipe {

/// A transformer: decoder-only (`encoder_layers` 0) or encoder-decoder (both > 0, `cross_attention` true).
/// All sizes are numbers of elements.
struct model_spec {
  std::string name;
  std::int64_t encoder_layers = 0;
  std::int64_t decoder_layers = 0;
  bool cross_attention = false;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< heads of keys and values; fewer than `heads` for grouped-query attention
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;
  bool gated = false;  ///< feed-forward of three matrices (SwiGLU, GeGLU) and no dropout, instead of two (GELU)
  std::int64_t vocabulary = 0;
  bool tied_head = false;  ///< the head uses the embedding's matrix
  attention_mask attention = attention_mask::causal;
  attention_kernel kernel = attention_kernel::fused;
  dtype type = dtype::bf16;

  [[nodiscard]] bool encoder_decoder() const { return encoder_layers > 0; }
  [[nodiscard]] std::int64_t layers() const { return encoder_layers + decoder_layers; }
  /// The kind of this model's decoder layers.
  [[nodiscard]] layer_kind decoder_kind() const {
    return cross_attention ? layer_kind::cross_decoder : layer_kind::decoder;
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

/// All model presets.
[[nodiscard]] inline std::array<model_spec, 12> models() {
  return {gpt_3_35b(), gpt_6_7b(), gpt_13b(),    gpt_29b(),    t5_5_5b(),     t5_11b(),
          t5_22b(),    t5_44b(),   llama_2_7b(), llama_3_8b(), llama_3_70b(), qwen2_5_7b()};
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
/// @throws error naming the field, where a size is not positive or two fields contradict each other.
inline void require_sound(const model_spec& model) {
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
  within(model.ffn, 1, 100'000'000, "ffn");
  within(model.vocabulary, 1, 100'000'000, "vocabulary");
  if (model.heads % model.kv_heads != 0)
    fail("heads (" + std::to_string(model.heads) + ") must be a multiple of kv_heads (" +
         std::to_string(model.kv_heads) + ")");
  if (model.cross_attention != (model.encoder_layers > 0))
    fail("cross_attention is for encoder-decoder models: it must be true exactly where encoder_layers is above 0");
}

}  // namespace dynapipe
