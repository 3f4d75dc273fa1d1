#pragma once

#include <cstdint>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>

namespace dynapipe {

/// Number of parameters of one layer of `kind`: matrices and norms (two vectors each), no biases. `head` is the output
/// matrix and the final norm; whether a tied head costs memory is the stage's matter. O(1), never throws.
[[nodiscard]] inline std::int64_t parameters(const model_spec& model, layer_kind kind) {
  const std::int64_t h = model.hidden;
  const std::int64_t query = model.heads * model.head_dim;
  const std::int64_t keys_values = 2 * model.kv_heads * model.head_dim;
  const std::int64_t attention = h * (2 * query + keys_values) + 2 * h;
  const std::int64_t feed_forward = (model.gated ? 3 : 2) * h * model.ffn + 2 * h;
  switch (kind) {
    case layer_kind::embedding: return model.vocabulary * h;
    case layer_kind::encoder:
    case layer_kind::decoder: return attention + feed_forward;
    case layer_kind::cross_decoder: return 2 * attention + feed_forward;
    case layer_kind::head: break;
  }
  return model.vocabulary * h + 2 * h;
}

/// Parameters of the whole model; a tied head counts once.
[[nodiscard]] inline std::int64_t parameters(const model_spec& model) {
  return parameters(model, layer_kind::embedding) + model.encoder_layers * parameters(model, layer_kind::encoder) +
         model.decoder_layers * parameters(model, model.decoder_kind()) +
         (model.tied_head ? 2 * model.hidden : parameters(model, layer_kind::head));
}

/// Bytes of training state for one parameter with Adam: weight and gradient in the training dtype, two moments and,
/// for 16-bit training, a master copy in fp32: 16 bytes for 16-bit and fp32, 32 for fp64.
[[nodiscard]] constexpr std::int64_t state_bytes_per_parameter(dtype type) {
  switch (type) {
    case dtype::fp64: return 32;
    case dtype::fp32:
    case dtype::bf16:
    case dtype::fp16: break;
  }
  return 16;
}

}  // namespace dynapipe
