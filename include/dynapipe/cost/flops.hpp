#pragma once

#include <cstdint>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/cost/counts.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/parameters.hpp>

namespace dynapipe {

namespace detail {

[[nodiscard]] constexpr bool is_block(layer_kind kind) {
  return kind != layer_kind::embedding && kind != layer_kind::head;
}

/// Whether a layer of `kind` hides half of self-attention's square.
[[nodiscard]] inline bool is_causal(const model_spec& model, layer_kind kind) {
  return model.attention == attention_mask::causal && kind != layer_kind::encoder;
}

/// FLOPs of a forward's matrices: two for each element that a token meets. Lookups of the embedding are none.
[[nodiscard]] inline polynomial matrix_flops(const model_spec& model, layer_kind kind) {
  const wide_int h = model.hidden;
  if (kind == layer_kind::embedding) return {};
  if (kind == layer_kind::head) return {.queries = 2 * h * model.vocabulary};
  polynomial flops{.queries =
                       wide_int{2} * (attention_matrices(model) +
                                      feed_forward_matrices(model, model.experts_per_token + model.shared_experts))};
  if (kind == layer_kind::cross_decoder) {
    flops.queries += 2 * h * 2 * model.heads * model.head_dim;
    flops.keys = 2 * h * 2 * model.kv_heads * model.head_dim;
  }
  return flops;
}

/// FLOPs of a forward's scores and of their products with the values; `halved` where half of self-attention's pairs are
/// left out.
[[nodiscard]] inline polynomial attention_flops(const model_spec& model, layer_kind kind, bool halved) {
  if (!is_block(kind)) return {};
  const wide_int half = static_cast<wide_int>(model.heads) * (model.key_dim() + model.value_dim());
  return {.self_pairs = halved ? half : 2 * half, .cross_pairs = kind == layer_kind::cross_decoder ? 2 * half : 0};
}

}  // namespace detail

/// FLOPs of the forward of ONE layer of `kind` that the model asks for, whatever a kernel computes: a multiplication
/// and an addition are two, a causal mask is half of its square, a window and documents are counted once (those of a
/// `varlen_shape` are in its squares: make it with the model's `window`). Of real tokens where the shape is varlen,
/// padding included where it is padded. All ranks' together; held at the largest int64. O(1), never throws.
///
/// For T tokens of a decoder-only layer 2 T (elements of the matrices that a token meets) + heads (key_dim +
/// value_dim) S, S the sum of squares; twice that last term without a causal mask.
template <micro_batch_shape Shape = shape>
[[nodiscard]] std::int64_t forward_flops(const model_spec& model, layer_kind kind, const Shape& s) {
  const detail::polynomial flops =
      detail::matrix_flops(model, kind) + detail::attention_flops(model, kind, detail::is_causal(model, kind));
  return detail::quantised<>{flops}.at(row_counts_of(kind, s, model.window));
}

/// FLOPs of one training step of the whole model, for its FLOPs utilisation (MFU): of all layers and the head, forward
/// and backward (twice the forward), no recomputation. As `forward_flops` otherwise.
template <micro_batch_shape Shape = shape>
[[nodiscard]] std::int64_t model_flops(const model_spec& model, const Shape& s) {
  const std::int64_t encoder =
      model.encoder_decoder() ? saturating_mul(model.encoder_layers, forward_flops(model, layer_kind::encoder, s)) : 0;
  const std::int64_t decoder = saturating_mul(model.decoder_layers, forward_flops(model, model.decoder_kind(), s));
  return saturating_mul(3, saturating_add(saturating_add(encoder, decoder), forward_flops(model, layer_kind::head, s)));
}

/// FLOPs of one training step of ONE layer of `kind` that are executed: padding, the pairs that an unfused kernel
/// computes only to mask them, and recomputation included. All ranks' together; held at the largest int64. O(1), never
/// throws.
template <micro_batch_shape Shape = shape>
[[nodiscard]] std::int64_t executed_flops(const model_spec& model, layer_kind kind, const Shape& s,
                                          recompute_mode recompute) {
  const bool skips = detail::is_causal(model, kind) && model.kernel == attention_kernel::fused;
  const detail::polynomial attention = detail::attention_flops(model, kind, skips);
  const detail::polynomial forward = detail::matrix_flops(model, kind) + attention;
  detail::polynomial all = forward * 3;
  if (recompute == recompute_mode::selective) all = all + attention;
  if (recompute == recompute_mode::full && detail::is_block(kind)) all = all + forward;
  return detail::quantised<>{all}.at(row_counts_of(kind, s, skipped_window(model)));
}

}  // namespace dynapipe
