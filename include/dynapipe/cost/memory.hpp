#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/counts.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/parameters.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

/// State of one layer of `kind` on one rank in its parts, each rounded up: weights, gradients and the optimizer's
/// states may be wanted apart. Saturates, never throws.
[[nodiscard]] inline state_parts state_of(const model_spec& model, layer_kind kind, const state_sharding& over = {}) {
  return state_of(parameters(model, kind), adam(model.type), over);
}

/// Bytes of the logits that the last stage keeps for the loss's backward: fp32, divided over tensor-parallel ranks.
/// Part of what `analytic_cost` calls the head's `stored`. Saturates, never throws.
template <micro_batch_shape Shape = shape>
[[nodiscard]] bytes logits_bytes(const model_spec& model, const Shape& s, std::int64_t tensor_parallel = 1) {
  return bytes{saturating_mul(counts_of(layer_kind::head, s).queries, ceil_div(4 * model.vocabulary, tensor_parallel))};
}

/// What activations may take of a device: its memory without the cluster's reserve and `state`; at least 0.
[[nodiscard]] inline bytes activation_room(const cluster_spec& cluster, bytes state) {
  const std::int64_t taken = saturating_add(cluster.reserve.value(), state.value());
  return bytes{std::max<std::int64_t>(0, cluster.memory.value() - taken)};
}

/// Equal layers in a row on one device, with the micro-batches that have run forward there and wait for their backward,
/// the running one included.
struct layer_stack {
  layer_kind kind = layer_kind::decoder;
  std::int64_t layers = 1;
  std::int64_t in_flight = 1;
};

/// The most activation memory of a stack while micro-batches of shape `s` pass: what all of them store, and on top the
/// larger of a backward's transient and a forward's excess in one layer. Boundary buffers are not in it. Saturates,
/// never throws.
template <class CostModel, micro_batch_shape Shape = shape>
  requires cost_model<CostModel, Shape>
[[nodiscard]] bytes peak_of_stack(const CostModel& cost, const layer_stack& stack, const Shape& s,
                                  recompute_mode recompute) {
  const std::int64_t stored = cost.stored(stack.kind, s, recompute).value();
  const std::int64_t excess = std::max<std::int64_t>(0, cost.forward_peak(stack.kind, s, recompute).value() - stored);
  const std::int64_t transient = std::max(excess, cost.backward_peak(stack.kind, s, recompute).value());
  return bytes{saturating_add(saturating_mul(saturating_mul(stack.layers, stack.in_flight), stored), transient)};
}

/// The largest n in 0..`most` for which `needed(n)` is at most `room`; -1 where not even 0 is. `needed` maps a number
/// to bytes and must not fall when it grows: rows of a length, lengths of a row, micro-batches in flight, of one layer
/// or a whole stage. Doubles a step until it is too far, then halves: O(log n) calls.
template <class Needed>
  requires requires(Needed& needed) {
    { needed(std::int64_t{}) } -> std::same_as<bytes>;
  }
[[nodiscard]] std::int64_t largest_fitting(Needed&& needed, bytes room, std::int64_t most = std::int64_t{1} << 32) {
  if (needed(0) > room) return -1;
  std::int64_t fits = 0;
  std::int64_t step = 1;
  while (step <= most - fits && needed(fits + step) <= room) {
    fits += step;
    step *= 2;
  }
  for (; step > 0; step /= 2)
    if (step <= most - fits && needed(fits + step) <= room) fits += step;
  return fits;
}

/// `rows` rows like those of `one`, which has one.
[[nodiscard]] constexpr shape repeated(const shape& one, std::int64_t rows) {
  return {saturating_mul(one.rows, rows), one.input, one.target};
}
/// `samples` samples like that of `one`, which has one.
[[nodiscard]] constexpr varlen_shape repeated(const varlen_shape& one, std::int64_t samples) {
  const auto times = [samples](std::int64_t count) { return saturating_mul(count, samples); };
  return {times(one.tokens),        times(one.squares),        times(one.samples),
          times(one.target_tokens), times(one.target_squares), times(one.cross_pairs)};
}

/// The largest number of rows (or samples) like the one of `one` that a stack has room for: the inverse of
/// `peak_of_stack`, for any cost model. O(log rows) evaluations, never throws.
template <class CostModel, micro_batch_shape Shape = shape>
  requires cost_model<CostModel, Shape>
[[nodiscard]] std::int64_t largest_rows(const CostModel& cost, const layer_stack& stack, const Shape& one,
                                        recompute_mode recompute, bytes room) {
  const auto needed = [&](std::int64_t rows) {
    return rows == 0 ? bytes{0} : peak_of_stack(cost, stack, repeated(one, rows), recompute);
  };
  return largest_fitting(needed, room);
}

}  // namespace dynapipe
