#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/batch/constraint.hpp>
#include <dynapipe/batch/limit_search.hpp>
#include <dynapipe/batch/partition.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/batch/shape_budget_chain.hpp>
#include <dynapipe/batch/shape_budget_exact.hpp>
#include <dynapipe/batch/shape_budget_sets.hpp>
#include <dynapipe/batch/shape_budget_times.hpp>
#include <dynapipe/batch/shape_map.hpp>
#include <dynapipe/batch/suffix_sums.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

/// A cut of ordered samples into micro-batches of few shapes; times are those of the shapes.
struct shape_budget_result : partition_result {
  std::vector<shape> shapes;            ///< all different, in the order of their first micro-batches
  std::vector<std::uint32_t> shape_of;  ///< of each micro-batch, an index into `shapes`
  wide_int lower_bound = 0;             ///< the scaled objective of `partition`, which no budget can beat
  bool optimal = false;                 ///< no set of so many shapes, and no cut, is better
};

namespace detail {

/// Longest first in all lengths: none of a sample's is above that of the sample before.
template <class Lazy = void>
[[nodiscard]] bool is_chain(std::span<const shape> alone) {
  return std::adjacent_find(alone.begin(), alone.end(), [](const shape& a, const shape& b) {
           return b.input > a.input || b.target > a.target;
         }) == alone.end();
}

/// A chain's shapes, in order.
template <class Times>
[[nodiscard]] std::vector<shape> shapes_of(const shape_chain& of, const Times& times) {
  std::vector<shape> set;
  std::size_t position = 0;
  for (const chain_item& item : of) {
    if (position >= times.samples()) break;
    set.push_back(times.run(times.run_at(position)).alone);
    set.back().rows = item.rows;
    position += static_cast<std::size_t>(item.rows * item.count);
  }
  return set;
}

/// What `partition` finds, and cuts for some other limits of t_max that are promising.
struct free_cuts {
  partition_result best;
  std::vector<std::vector<std::size_t>> others;
};

template <class ShapeTime>
[[nodiscard]] std::optional<free_cuts> cut_freely(std::span<const sample_lengths> ordered, const shape_options& shapes,
                                                  ShapeTime& time, const partition_options& options) {
  constexpr std::size_t few = 1'024;
  std::optional<free_cuts> result;
  with_kernel(ordered, shapes, time, options, [&](auto& kernel) {
    limit_search search{kernel, weights_of(options)};
    search.run();
    const auto best = search.best();
    result = free_cuts{{search.cuts(), nanoseconds{best.times.t_max}, nanoseconds{best.times.sum}}, {}};
    if (ordered.size() > few) return;
    auto points = search.points();
    std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
      return a.objective != b.objective ? a.objective < b.objective : a.times.t_max < b.times.t_max;
    });
    for (const auto& point : points) {
      if (point.times.t_max == best.times.t_max || result->others.size() == 2) continue;
      search.solve(point.times.t_max);
      result->others.push_back(search.last_cuts());
    }
  });
  return result;
}

/// A cut whose micro-batches each have the shape of what they hold.
template <class Lazy = void>
[[nodiscard]] shape_budget_result as_shapes(const partition_result& cut, std::span<const shape> alone) {
  shape_budget_result result{cut, {}, {}, 0, true};
  shape_map<std::uint32_t> known;
  for (std::size_t m = 0; m < cut.cuts.size(); ++m) {
    const std::size_t end = m + 1 < cut.cuts.size() ? cut.cuts[m + 1] : alone.size();
    shape held{static_cast<std::int64_t>(end - cut.cuts[m]), 0, 0};
    for (std::size_t i = cut.cuts[m]; i < end; ++i) {
      held.input = std::max(held.input, alone[i].input);
      held.target = std::max(held.target, alone[i].target);
    }
    result.shape_of.push_back(known.find_or(held, [&] {
      result.shapes.push_back(held);
      return static_cast<std::uint32_t>(result.shapes.size() - 1);
    }));
  }
  return result;
}

/// The result for a set that holds all samples: filled for the least sum, shapes that nothing needs left out.
template <class ShapeTime>
[[nodiscard]] shape_budget_result cut_of(const std::vector<shape>& set, std::span<const shape> alone, ShapeTime& time) {
  const std::optional<set_cut> cut = set_filler<ShapeTime>{alone, time}.fill(set);
  shape_budget_result result;
  result.cuts = cut->cuts;
  for (const std::uint32_t s : cut->shape_of) {
    const auto at = std::find(result.shapes.begin(), result.shapes.end(), cut->held[s]);
    result.shape_of.push_back(static_cast<std::uint32_t>(at - result.shapes.begin()));
    if (at == result.shapes.end()) result.shapes.push_back(cut->held[s]);
  }
  std::vector<nanoseconds> times;
  for (const shape& s : result.shapes) {
    times.push_back(*time(s));
    result.t_max = std::max(result.t_max, times.back());
  }
  for (const std::uint32_t s : result.shape_of)
    result.sum += times[s];
  return result;
}

/// The best set found; empty where a sample does not fit.
template <class ShapeTime>
[[nodiscard]] std::pair<std::vector<shape>, bool> best_set(std::span<const shape> alone, ShapeTime& time,
                                                           std::size_t most, const free_cuts& cuts,
                                                           const objective_weights& weights) {
  constexpr std::size_t few = 64;
  if (is_chain(alone)) {
    auto times = times_of_runs<ShapeTime>::make(runs_of(alone), time);
    if (alone.size() > few) return {shapes_of(best_budget_chain(*times, most, weights), *times), false};
    budget_exact exact{*times, most, weights};
    limit_search{exact, weights}.run();
    return {shapes_of(exact.best(), *times), true};
  }
  set_search<ShapeTime> search{alone, time, weights};
  auto best = search.run(cuts.best.cuts, most);
  for (const auto& other : cuts.others)
    if (const auto now = search.run(other, most); now.value.better_than(best.value)) best = now;
  return {best.set, false};
}

}  // namespace detail

/// Cuts ordered samples into contiguous micro-batches of at most `most_shapes` different shapes: CUDA graphs and
/// compiled models are made anew for each.
///
/// Problem: choose the shapes, and for each micro-batch one that holds it, rows without a sample being padding that
/// costs as any row; minimise (devices - 1) * t_max / stages_per_device + sum / replicas over both, as `partition` does
/// without a budget.
///
/// Method: samples longest first in all lengths can be dealt anew to the same micro-batches, longest micro-batch first,
/// each full but the last: for every length there are at least as many rows that long as samples. So shapes follow one
/// another, each for a number of micro-batches, with the lengths of the first sample in them, and full micro-batches
/// are filled across borders. Up to 64 samples `detail::budget_exact` tries all such chains within
/// `detail::limit_search`; beyond, `detail::budget_chain` and `detail::chain_polish` a choice of them. In any other
/// order a shape may be wanted here and again there: `detail::set_search`.
///
/// `time` as in `partition`.
///
/// Guarantee: never more than `most_shapes`; optimal for up to 64 samples that are longest first in all lengths, and
/// where the cut of `partition` has no more shapes than that: it is the result then. The objective does not rise with
/// `most_shapes`. None is returned exactly where some sample alone does not fit.
/// Complexity, K = most_shapes: `partition`, and about 20 + K programs of O(K x 64^2) for samples longest first, O(n
/// K^2) fills otherwise. Memory: that of `partition` and 30 bytes a sample; longest first, 8 bytes as well for each
/// number of rows of each run of equal lengths that fits.
///
/// @throws unsatisfiable (batch_constraint::shapes) where `most_shapes` < 1, and where no set of so many shapes was
/// found that fits and holds all samples. Samples longest first in all lengths always have one.
template <class ShapeTime>
[[nodiscard]] std::optional<shape_budget_result> shape_budget(std::span<const sample_lengths> ordered,
                                                              const shape_options& shapes, ShapeTime&& time,
                                                              const partition_options& options,
                                                              std::int64_t most_shapes) {
  DYNAPIPE_ASSERT(options.devices > 0 && options.replicas > 0 && options.stages_per_device > 0);
  if (most_shapes < 1)
    throw unsatisfiable{
        "most_shapes is " + std::to_string(most_shapes) + ": every micro-batch has a shape; allow 1 at least",
        batch_constraint::shapes};
  if (ordered.empty()) return shape_budget_result{{}, {}, {}, 0, true};
  const std::optional<detail::free_cuts> cuts = detail::cut_freely(ordered, shapes, time, options);
  if (!cuts) return std::nullopt;
  const std::vector<shape> alone = detail::padded_alone(ordered, shapes);
  const auto most = static_cast<std::size_t>(most_shapes);
  shape_budget_result result = detail::as_shapes(cuts->best, alone);
  if (result.shapes.size() > most) {
    const auto [set, exact] =
        detail::best_set(std::span<const shape>{alone}, time, most, *cuts, detail::weights_of(options));
    if (set.empty())
      throw unsatisfiable{"found no " + std::to_string(most_shapes) +
                              " shapes that fit and hold all samples: the cut without a budget has " +
                              std::to_string(result.shapes.size()) + "; allow more",
                          batch_constraint::shapes};
    result = detail::cut_of(set, alone, time);
    result.optimal = exact;
  }
  result.lower_bound = cuts->best.scaled_objective(options);
  result.optimal = result.optimal || result.scaled_objective(options) == result.lower_bound;
  return result;
}

}  // namespace dynapipe
