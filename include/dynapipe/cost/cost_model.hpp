#pragma once

#include <concepts>

#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

/// What the planner asks of a cost model: the cost of ONE layer of a kind for a padded micro-batch, on one rank of a
/// tensor-parallel group.
///
/// - `forward`, `backward`: time of the pass; with recomputation, `backward` includes running the forward again.
/// - `stored`: bytes that the forward keeps for the backward, the layer's own input included.
/// - `forward_peak`: largest bytes while the forward runs, `stored` included. `backward_peak`: largest bytes that the
///   backward needs on top of what is stored, recomputed activations included.
/// - `state`: bytes of weights, gradients and optimizer states.
///
/// `encoder`, `decoder` and `embedding` read `rows x input` tokens; `cross_decoder` reads `rows x target` tokens and
/// attends to `rows x input`; `head` reads `rows x target` tokens, or `rows x input` where target is 0.
///
/// Optional: `source()`, a text that plans name as the source of their costs ("custom" where it is missing).
///
/// Required of every model: results are at least 0, do not fall when rows or a length grow, and are held at the largest
/// value instead of overflowing. Where ranks plan for themselves, results must not depend on compiler flags.
template <class Model>
concept cost_model = requires(const Model& model, layer_kind kind, const shape& s, recompute_mode recompute) {
  { model.forward(kind, s, recompute) } -> std::same_as<nanoseconds>;
  { model.backward(kind, s, recompute) } -> std::same_as<nanoseconds>;
  { model.stored(kind, s, recompute) } -> std::same_as<bytes>;
  { model.forward_peak(kind, s, recompute) } -> std::same_as<bytes>;
  { model.backward_peak(kind, s, recompute) } -> std::same_as<bytes>;
  { model.state(kind) } -> std::same_as<bytes>;
};

}  // namespace dynapipe
