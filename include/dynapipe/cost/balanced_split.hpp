#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/shape.hpp>
#include <dynapipe/cost/split.hpp>
#include <dynapipe/cost/stage.hpp>
#include <dynapipe/cost/stage_costs.hpp>

namespace dynapipe {

/// A shape of a mix, and how many micro-batches have it, in any unit.
struct weighted_shape {
  shape of;
  std::int64_t weight = 1;

  friend constexpr bool operator==(const weighted_shape&, const weighted_shape&) = default;
};

namespace detail {

/// Times of runs of a model's layers over a mix, forward and backward, embedding and head where they belong.
class run_times {
 public:
  template <class CostModel>
  run_times(const model_spec& model, const CostModel& cost, std::span<const weighted_shape> mix,
            recompute_mode recompute)
      : encoders_{model.encoder_layers}, layers_{model.layers()} {
    const auto add = [&](wide_int& sum, layer_kind kind, const shape& s, std::int64_t weight) {
      const nanoseconds forward = cost.forward(kind, s, recompute);
      const nanoseconds backward = cost.backward(kind, s, recompute);
      if (forward == nanoseconds::max() || backward == nanoseconds::max()) {
        const std::string reason = refusal(cost, kind, s, recompute);
        throw error{"the mix has a shape of " + std::to_string(s.rows) + " x " + std::to_string(s.input) +
                    (s.target > 0 ? " + " + std::to_string(s.target) : std::string{}) +
                    " tokens that cannot be run: " + (reason.empty() ? "it takes longer than 2^63 ns" : reason)};
      }
      sum += (static_cast<wide_int>(forward.value()) + backward.value()) * weight;
    };
    // Stages that stand for those that embed: the first, the decoder's first, and one that is both.
    const stage_spec first{.encoder = {0, model.encoder_layers > 0 ? 1 : 0}, .decoder = {0, encoders_ > 0 ? 0 : 1}};
    const stage_spec decoder{.encoder = {}, .decoder = {0, 1}};
    const stage_spec both{.encoder = {0, model.encoder_layers}, .decoder = {0, 1}};
    for (const auto& [s, weight] : mix) {
      if (model.encoder_layers > 0) add(encoder_, layer_kind::encoder, s, weight);
      add(decoder_, model.decoder_kind(), s, weight);
      add(head_, layer_kind::head, s, weight);
      add(embedding_[0], layer_kind::embedding, embedded_shape(model, first, s), weight);
      if (model.encoder_layers > 0)
        add(embedding_[1], layer_kind::embedding, embedded_shape(model, decoder, s), weight);
      if (model.encoder_layers > 0) add(embedding_[2], layer_kind::embedding, embedded_shape(model, both, s), weight);
    }
  }

  /// Of the layers [from, to), from < to, encoder first.
  [[nodiscard]] wide_int operator()(std::int64_t from, std::int64_t to) const {
    const std::int64_t encoders = std::min(to, encoders_) - std::min(from, encoders_);
    wide_int time = encoders * encoder_ + (to - from - encoders) * decoder_;
    const bool starts_decoder = encoders_ > 0 && from <= encoders_ && to > encoders_;
    if (from == 0)
      time += embedding_[starts_decoder ? 2 : 0];
    else if (starts_decoder)
      time += embedding_[1];
    return to == layers_ ? time + head_ : time;
  }

  [[nodiscard]] std::int64_t layers() const { return layers_; }

 private:
  std::int64_t encoders_;
  std::int64_t layers_;
  wide_int encoder_ = 0;
  wide_int decoder_ = 0;
  wide_int head_ = 0;
  std::array<wide_int, 3> embedding_{};
};

/// The least `value` in [low, high] that `holds`, which must hold at `high` and not stop holding.
template <class Integer, class Holds>
[[nodiscard]] Integer least_that(Integer low, Integer high, Holds&& holds) {
  while (low < high) {
    const Integer middle = low + (high - low) / 2;
    if (holds(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// The least time that the busiest of `stages` runs of layers can have.
template <class Lazy = void>
[[nodiscard]] wide_int least_busiest(const run_times& time, std::int64_t stages) {
  const auto fits = [&](const wide_int limit) {
    std::int64_t from = 0;
    for (std::int64_t s = 0; s + 1 < stages; ++s) {
      const std::int64_t last = time.layers() - (stages - 1 - s);
      if (time(from, from + 1) > limit) return false;
      from = least_that(from + 1, last, [&](std::int64_t to) { return to == last || time(from, to + 1) > limit; });
    }
    return time(from, time.layers()) <= limit;
  };
  return least_that<wide_int>(0, time(0, time.layers()), fits);
}

/// Layers of each stage where none takes longer than `limit`: least sum of squared counts, then the fewest first.
template <class Lazy = void>
[[nodiscard]] std::vector<std::int64_t> most_even(const run_times& time, std::int64_t stages, wide_int limit) {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  const std::int64_t layers = time.layers();
  const auto width = static_cast<std::size_t>(layers) + 1;
  // squares[from]: of the stages from s on, when s begins at layer `from`.
  std::vector<std::int64_t> squares(width, never);
  squares[width - 1] = 0;
  std::vector<std::vector<std::int64_t>> chosen(static_cast<std::size_t>(stages), std::vector<std::int64_t>(width, 0));
  for (std::int64_t s = stages; s-- > 0;) {
    std::vector<std::int64_t> now(width, never);
    const std::int64_t after = stages - 1 - s;
    for (std::int64_t from = s; from < layers - after; ++from)
      for (std::int64_t to = from + 1; to <= layers - after && time(from, to) <= limit; ++to) {
        const std::int64_t rest = squares[static_cast<std::size_t>(to)];
        const std::int64_t sum = rest == never ? never : rest + (to - from) * (to - from);
        if (sum < now[static_cast<std::size_t>(from)]) {
          now[static_cast<std::size_t>(from)] = sum;
          chosen[static_cast<std::size_t>(s)][static_cast<std::size_t>(from)] = to - from;
        }
      }
    squares = std::move(now);
  }
  std::vector<std::int64_t> result;
  std::int64_t from = 0;
  for (const std::vector<std::int64_t>& counts : chosen) {
    result.push_back(counts[static_cast<std::size_t>(from)]);
    from += result.back();
  }
  return result;
}

}  // namespace detail

/// Cuts a model's layers into `stages` stages so that the busiest of them is least busy over a mix of shapes, exactly.
///
/// Problem: minimise, over cuts of the layers (encoder first) into `stages` runs of at least one layer, the largest
/// stage's sum of weight x (forward + backward) over the mix. The first stage also embeds, so does an encoder-decoder's
/// first with decoder layers, and the last holds the head. For pipelines of one stage a device.
///
/// Method: a limit can be kept exactly where stages that take as many layers as they can from left to right leave few
/// enough for the last, since a run does not get slower when it loses a layer; the least such limit by bisection over
/// the integers. Among the cuts within that limit a dynamic program over (stage, first layer) takes the most even one.
///
/// Guarantee: optimal, provided that the cost model keeps its contract (costs do not fall when lengths grow), and equal
/// everywhere: integers only. Ties: the least sum of squared layer counts, then the fewest layers in the first stage
/// where they differ. Complexity: O(mix + layers x stages x longest run within the limit) time, O(layers x stages)
/// memory.
///
/// @throws error where stages are fewer than 1 or more than layers, the mix is empty, a weight does not lie in 1..2^31,
/// or the model refuses a shape.
template <cost_model CostModel>
[[nodiscard]] std::vector<stage_spec> balanced_split(const model_spec& model, std::int64_t stages,
                                                     const CostModel& cost, std::span<const weighted_shape> mix,
                                                     recompute_mode recompute) {
  if (stages < 1 || stages > model.layers()) return split_layers(model, stages);
  if (mix.empty()) throw error{"a balanced split needs a mix of at least one shape"};
  for (std::size_t i = 0; i < mix.size(); ++i)
    require_within("mix: ", "weight of shape " + std::to_string(i), mix[i].weight, 1, std::int64_t{1} << 31);
  const detail::run_times time{model, cost, mix, recompute};
  return cut_layers(model, detail::most_even(time, stages, detail::least_busiest(time, stages)));
}

}  // namespace dynapipe
