#pragma once

#include <concepts>
#include <string>

#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

/// What the planner asks of a cost model: the cost of ONE layer of a kind for a micro-batch, on one rank of a
/// tensor-parallel group. A model says by its overloads which shapes it supports: `cost_model<M>` is one for padded
/// shapes, `cost_model<M, varlen_shape>` one for concatenated samples.
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
/// Optional members:
/// - `source()`: a text that plans name as the source of their costs ("custom" where it is missing);
/// - `extrapolates(kind, shape, recompute)`: whether an answer lies outside of what the model has seen; plans count it;
/// - `refusal(kind, shape, recompute)`: why a shape whose costs are the largest value is refused, with the knob that
///   would help; an empty text where it is not;
/// - `convex_rows()`: true where `forward` and `backward` are exactly convex in the rows of a padded shape: one row
/// more
///   never adds less than the row before did. Partitions are near-linear then.
///
/// Required of every model: results are at least 0, do not fall when rows or a length grow, and are held at the largest
/// value instead of overflowing; the largest value says that the shape cannot be run. Where ranks plan for themselves,
/// results must not depend on compiler flags.
template <class Model, class Shape = shape>
concept cost_model = requires(const Model& model, layer_kind kind, const Shape& s, recompute_mode recompute) {
  { model.forward(kind, s, recompute) } -> std::same_as<nanoseconds>;
  { model.backward(kind, s, recompute) } -> std::same_as<nanoseconds>;
  { model.stored(kind, s, recompute) } -> std::same_as<bytes>;
  { model.forward_peak(kind, s, recompute) } -> std::same_as<bytes>;
  { model.backward_peak(kind, s, recompute) } -> std::same_as<bytes>;
  { model.state(kind) } -> std::same_as<bytes>;
};

/// A cost model that can also split the backward in halves: `backward_input` (the gradient to send) and
/// `backward_weight` (the weights' gradients), and `weight_stored`, the part of `stored` that only the weight half
/// returns. Their times sum to `backward` at least.
template <class Model, class Shape = shape>
concept split_cost_model = cost_model<Model, Shape> &&
                           requires(const Model& model, layer_kind kind, const Shape& s, recompute_mode recompute) {
                             { model.backward_input(kind, s, recompute) } -> std::same_as<nanoseconds>;
                             { model.backward_weight(kind, s, recompute) } -> std::same_as<nanoseconds>;
                             { model.weight_stored(kind, s, recompute) } -> std::same_as<bytes>;
                           };

/// Whether `model` says that it extrapolates for this shape; false where it does not say. Never throws.
template <class Model, class Shape>
[[nodiscard]] bool extrapolates(const Model& model, layer_kind kind, const Shape& s, recompute_mode recompute) {
  if constexpr (requires { bool{model.extrapolates(kind, s, recompute)}; }) {
    return model.extrapolates(kind, s, recompute);
  } else {
    return false;
  }
}

/// Whether `model` says that its times are convex in rows; false where it does not say. Never throws.
template <class Model>
[[nodiscard]] constexpr bool has_convex_rows(const Model& model) {
  if constexpr (requires { bool{model.convex_rows()}; }) {
    return model.convex_rows();
  } else {
    return false;
  }
}

/// Why `model` refuses this shape; empty where it does not, or does not say.
template <class Model, class Shape>
[[nodiscard]] std::string refusal(const Model& model, layer_kind kind, const Shape& s, recompute_mode recompute) {
  if constexpr (requires { std::string{model.refusal(kind, s, recompute)}; }) {
    return model.refusal(kind, s, recompute);
  } else {
    return {};
  }
}

}  // namespace dynapipe
