#pragma once

#include <cstdint>
#include <string_view>

#include <dynapipe/core/names.hpp>

namespace dynapipe {

/// What a layer is, for its cost. `decoder` has self-attention only (GPT, Llama); `cross_decoder` also attends to the
/// encoder's output (T5).
enum class layer_kind : std::uint8_t { embedding, encoder, decoder, cross_decoder, head };

/// What a forward pass keeps for its backward pass (Korthikanti et al., arXiv 2205.05198): everything; everything but
/// the inside of attention; the layer's input alone.
enum class recompute_mode : std::uint8_t { none, selective, full };

/// Number format of weights and activations.
enum class dtype : std::uint8_t { bf16, fp16, fp32, fp64 };

/// Which keys a query sees in self-attention of decoder-only and decoder layers; encoders are always bidirectional.
enum class attention_mask : std::uint8_t { causal, bidirectional };

/// Whether attention keeps its score matrix in memory (`unfused`) or streams it (`fused`, as flash attention does).
enum class attention_kernel : std::uint8_t { fused, unfused };

inline constexpr name_table<layer_kind, 5> layer_kind_names{{{layer_kind::embedding, "embedding"},
                                                             {layer_kind::encoder, "encoder"},
                                                             {layer_kind::decoder, "decoder"},
                                                             {layer_kind::cross_decoder, "cross_decoder"},
                                                             {layer_kind::head, "head"}}};
inline constexpr name_table<recompute_mode, 3> recompute_names{
    {{recompute_mode::none, "none"}, {recompute_mode::selective, "selective"}, {recompute_mode::full, "full"}}};
inline constexpr name_table<dtype, 4> dtype_names{
    {{dtype::bf16, "bf16"}, {dtype::fp16, "fp16"}, {dtype::fp32, "fp32"}, {dtype::fp64, "fp64"}}};
inline constexpr name_table<attention_mask, 2> attention_mask_names{
    {{attention_mask::causal, "causal"}, {attention_mask::bidirectional, "bidirectional"}}};
inline constexpr name_table<attention_kernel, 2> attention_kernel_names{
    {{attention_kernel::fused, "fused"}, {attention_kernel::unfused, "unfused"}}};

[[nodiscard]] constexpr std::string_view to_string(layer_kind value) { return name_in(layer_kind_names, value); }
[[nodiscard]] constexpr std::string_view to_string(recompute_mode value) { return name_in(recompute_names, value); }
[[nodiscard]] constexpr std::string_view to_string(dtype value) { return name_in(dtype_names, value); }
[[nodiscard]] constexpr std::string_view to_string(attention_mask value) {
  return name_in(attention_mask_names, value);
}
[[nodiscard]] constexpr std::string_view to_string(attention_kernel value) {
  return name_in(attention_kernel_names, value);
}

/// Bytes of one number.
[[nodiscard]] constexpr std::int64_t size_of(dtype type) {
  switch (type) {
    case dtype::fp64: return 8;
    case dtype::fp32: return 4;
    case dtype::bf16:
    case dtype::fp16: break;
  }
  return 2;
}

}  // namespace dynapipe
