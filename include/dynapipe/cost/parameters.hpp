#pragma once

#include <cstdint>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>

namespace dynapipe {

namespace detail {

/// Elements of one self-attention's matrices.
[[nodiscard]] inline std::int64_t attention_matrices(const model_spec& model) {
  const std::int64_t h = model.hidden;
  if (!model.latent) return h * (2 * model.heads * model.head_dim + 2 * model.kv_heads * model.head_dim);
  const latent_spec& latent = *model.latent;
  const std::int64_t queries = model.heads * model.key_dim();
  return (latent.q_rank > 0 ? h * latent.q_rank + latent.q_rank * queries : h * queries) +
         h * (latent.kv_rank + latent.rope_dim) + latent.kv_rank * model.heads * (latent.nope_dim + latent.value_dim) +
         model.heads * latent.value_dim * h;
}

/// Elements of one feed-forward's matrices for `experts` experts, or of a dense one's; the router included.
[[nodiscard]] inline std::int64_t feed_forward_matrices(const model_spec& model, std::int64_t experts) {
  const std::int64_t matrices = model.gated ? 3 : 2;
  if (model.experts == 0) return matrices * model.hidden * model.ffn;
  return model.hidden * model.experts + experts * matrices * model.hidden * model.expert_ffn;
}

}  // namespace detail

/// Number of parameters of one layer of `kind`: matrices and norms (two vectors each), no biases; of a mixture all
/// experts, of latent attention the norms of the narrow vectors too. `head` is the output matrix and the final norm;
/// whether a tied head costs memory is the stage's matter. O(1), never throws.
[[nodiscard]] inline std::int64_t parameters(const model_spec& model, layer_kind kind) {
  const std::int64_t norm = 2 * model.hidden;
  const std::int64_t narrow_norms = model.latent ? 2 * (model.latent->q_rank + model.latent->kv_rank) : 0;
  const std::int64_t attention = detail::attention_matrices(model) + norm + narrow_norms;
  const std::int64_t feed_forward = detail::feed_forward_matrices(model, model.experts + model.shared_experts) + norm;
  switch (kind) {
    case layer_kind::embedding: return model.vocabulary * model.hidden;
    case layer_kind::encoder:
    case layer_kind::decoder: return attention + feed_forward;
    case layer_kind::cross_decoder: return 2 * attention + feed_forward;
    case layer_kind::head: break;
  }
  return model.vocabulary * model.hidden + norm;
}

/// Parameters of the whole model; a tied head counts once.
[[nodiscard]] inline std::int64_t parameters(const model_spec& model) {
  return parameters(model, layer_kind::embedding) + model.encoder_layers * parameters(model, layer_kind::encoder) +
         model.decoder_layers * parameters(model, model.decoder_kind()) +
         (model.tied_head ? 2 * model.hidden : parameters(model, layer_kind::head));
}

/// Bytes that training holds for one parameter.
struct parameter_bytes {
  std::int64_t weight = 0;
  std::int64_t gradient = 0;
  std::int64_t optimizer = 0;  ///< the optimizer's states and, where it keeps one, a copy of the weight

  [[nodiscard]] constexpr std::int64_t total() const { return weight + gradient + optimizer; }
  friend constexpr bool operator==(const parameter_bytes&, const parameter_bytes&) = default;
};

/// Adam: weight and gradient in the training dtype, two moments, and for 16-bit training moments and a master copy in
/// fp32.
[[nodiscard]] constexpr parameter_bytes adam(dtype type) {
  const std::int64_t size = size_of(type);
  return {size, size, size == 2 ? 12 : 2 * size};
}

/// Bytes of training state for one parameter with Adam: 16 for 16-bit training and fp32, 32 for fp64.
[[nodiscard]] constexpr std::int64_t state_bytes_per_parameter(dtype type) { return adam(type).total(); }

/// What ranks with the same layers divide among them (ZeRO, Rajbhandari et al., arXiv 1910.02054): at stage 1 the
/// optimizer's states, at 2 the gradients too, at 3 the weights too.
struct state_sharding {
  std::int64_t tensor_parallel = 1;
  std::int64_t zero = 0;           ///< 0..3
  std::int64_t data_parallel = 1;  ///< ranks that ZeRO divides over
};

/// Bytes of training state on one rank.
struct state_parts {
  bytes weights{0};
  bytes gradients{0};
  bytes optimizer{0};
};

/// State of `count` parameters on one rank, each part rounded up. Saturates, never throws.
[[nodiscard]] constexpr state_parts state_of(std::int64_t count, const parameter_bytes& each,
                                             const state_sharding& over) {
  const auto share = [&](std::int64_t size, std::int64_t least_stage) {
    const std::int64_t ranks = saturating_mul(over.tensor_parallel, over.zero >= least_stage ? over.data_parallel : 1);
    return bytes{ceil_div(saturating_mul(count, size), ranks)};
  };
  return {share(each.weight, 3), share(each.gradient, 2), share(each.optimizer, 1)};
}

/// The parts of `state_of` together, rounded up once.
[[nodiscard]] constexpr bytes total_state_of(std::int64_t count, const parameter_bytes& each,
                                             const state_sharding& over) {
  const auto share = [&](std::int64_t size, std::int64_t least_stage) {
    return static_cast<wide_int>(size) * (over.zero >= least_stage ? 1 : over.data_parallel);
  };
  const wide_int each_over_all = share(each.weight, 3) + share(each.gradient, 2) + share(each.optimizer, 1);
  const wide_int ranks = static_cast<wide_int>(over.tensor_parallel) * over.data_parallel;
  return bytes{saturate((count * each_over_all + ranks - 1) / ranks)};
}

}  // namespace dynapipe
