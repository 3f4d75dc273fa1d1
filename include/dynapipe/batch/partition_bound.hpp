#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <dynapipe/batch/partition.hpp>
#include <dynapipe/batch/row_times.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

namespace detail {

/// Samples of one pair of padded lengths, and what micro-batches of nothing but these lengths take.
struct alike_samples {
  std::size_t count = 0;
  std::vector<time_piece> pieces;

  /// The least that these samples can bear together of micro-batches that take `limit` at most, rounded down.
  [[nodiscard]] wide_int least_work(std::int64_t limit) const {
    std::int64_t time = 0;
    std::int64_t rows = 0;
    const auto take = [&](std::int64_t t, std::int64_t r) {
      if (rows > 0 && static_cast<wide_int>(t) * rows >= static_cast<wide_int>(time) * r) return;
      time = t;
      rows = r;
    };
    for (const time_piece& piece : pieces) {
      if (piece.at(piece.from) > limit) break;
      const std::int64_t to = piece.at(piece.to) <= limit ? piece.to : (limit - piece.offset) / piece.slope;
      take(piece.at(piece.from), piece.from);
      take(piece.at(to), to);
    }
    return rows == 0 ? 0 : static_cast<wide_int>(count) * time / rows;
  }
};

}  // namespace detail

/// A lower bound on the scaled objective of `partition` for these samples in any order and any cut, contiguous or not;
/// none where some sample alone does not fit.
///
/// Every sample bears time / rows of its micro-batch, which is no less than that of a micro-batch of as many samples
/// with the sample's own lengths: so for a limit T on t_max the sum is at least the sum W(T) over samples of the least
/// share that any number of rows within T and the memory allows. W falls as T grows. The bound is the least over
/// T_0 < T_1 < .. of the objective of (T_i, W(T_i+1)), T_0 being the longest sample's time alone: each covers the
/// limits from T_i to T_i+1. What it leaves out is the padding inside micro-batches.
///
/// O(lengths x (values asked for + steps)); with convex rows a few values for each pair of lengths, else one for each
/// number of rows that fits.
template <class ShapeTime>
[[nodiscard]] std::optional<wide_int> partition_bound(std::span<const sample_lengths> samples,
                                                      const shape_options& shapes, ShapeTime&& time,
                                                      const partition_options& options) {
  std::vector<shape> alone;
  for (const sample_lengths& s : samples)
    alone.push_back({1, padded_length(s.input, shapes), s.target > 0 ? padded_length(s.target, shapes) : 0});
  std::sort(alone.begin(), alone.end(), [](const shape& a, const shape& b) {
    return a.input != b.input ? a.input > b.input : a.target > b.target;
  });
  std::vector<detail::alike_samples> kinds;
  std::int64_t least = 0;
  std::int64_t most = 0;
  for (const detail::sample_run& run : detail::runs_of(alone)) {
    const std::optional<nanoseconds> one = time(run.alone);
    if (!one) return std::nullopt;
    detail::alike_samples& kind = kinds.emplace_back();
    kind.count = run.end - run.begin;
    const auto all = static_cast<std::int64_t>(samples.size());
    if (options.convex_rows) {
      const auto [last, at_last] = detail::last_fitting(run.alone, time, one->value(), 1, all);
      const auto value = [&](std::int64_t rows) {
        return time(shape{rows, run.alone.input, run.alone.target})->value();
      };
      detail::piece_finder{value, kind.pieces}.append(last, one->value(), at_last);
    } else {
      for (std::int64_t rows = 1; rows <= all; ++rows) {
        const std::optional<nanoseconds> t = time(shape{rows, run.alone.input, run.alone.target});
        if (!t) break;
        kind.pieces.push_back({rows, rows, t->value(), 0});
      }
    }
    least = std::max(least, one->value());
    most = std::max(most, kind.pieces.back().at(kind.pieces.back().to));
  }

  const detail::objective_weights weights = detail::weights_of(options);
  const auto work = [&](std::int64_t limit) {
    wide_int sum = 0;
    for (const detail::alike_samples& kind : kinds)
      sum += kind.least_work(limit);
    return saturate(sum);
  };
  constexpr std::int64_t steps_a_doubling = 8;
  wide_int bound = weights.of(least, work(most));
  wide_int best = -1;
  for (std::int64_t from = least; from <= most;) {
    const std::int64_t to = std::min(most, saturating_add(from, std::max<std::int64_t>(1, from / steps_a_doubling)));
    bound = weights.of(from, work(to));
    if (best < 0 || bound < best) best = bound;
    if (to == most) break;
    from = to;
  }
  return best < 0 ? bound : best;
}

/// The cuts worth a closer look: those of `partition`'s best objective and others near it, of which none has both a
/// slower slowest micro-batch and a larger sum than another, fastest slowest first.
///
/// `partition` counts a pipeline's length as (devices - 1) * t_max + sum, which a real schedule comes near at best; a
/// planner simulates these and keeps the one that turns out shortest. Each has the least sum of all cuts with its
/// t_max. At most `most` limits between the least t_max and where the objective exceeds the best by `slack_percent` are
/// tried, beside those that the search for the best tried anyway. None where some sample alone does not fit. O(most)
/// dynamic programs more than `partition`.
template <class ShapeTime>
[[nodiscard]] std::optional<std::vector<partition_result>> partition_frontier(
    std::span<const sample_lengths> ordered, const shape_options& shapes, ShapeTime&& time,
    const partition_options& options, std::size_t most = 8, std::int64_t slack_percent = 10) {
  DYNAPIPE_ASSERT(slack_percent >= 0);
  if (ordered.empty()) return std::vector<partition_result>{partition_result{}};
  std::optional<std::vector<partition_result>> result;
  detail::with_kernel(ordered, shapes, time, options, [&](auto& kernel) {
    const detail::objective_weights weights = detail::weights_of(options);
    detail::limit_search search{kernel, weights};
    search.run();
    const wide_int wanted = search.best().objective + search.best().objective * slack_percent / 100;
    const std::int64_t least = kernel.least_limit();
    const std::int64_t loosest_sum = search.points().front().times.sum;
    std::int64_t last = search.points().front().times.t_max;
    if (weights.t_max > 0)
      last = std::max(least, std::min(last, saturate((wanted - weights.sum * loosest_sum) / weights.t_max)));
    for (std::size_t k = 1; k <= most; ++k)
      search.solve(least + static_cast<std::int64_t>(static_cast<wide_int>(last - least) * static_cast<wide_int>(k) /
                                                     static_cast<wide_int>(most)));

    auto points = search.points();
    std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
      return a.times.t_max != b.times.t_max ? a.times.t_max < b.times.t_max : a.times.sum < b.times.sum;
    });
    std::vector<partition_result>& found = result.emplace();
    for (const auto& point : points) {
      if (point.objective > wanted || (!found.empty() && found.back().sum.value() <= point.times.sum)) continue;
      search.solve(point.times.t_max);
      found.push_back({search.last_cuts(), nanoseconds{point.times.t_max}, nanoseconds{point.times.sum}});
    }
  });
  return result;
}

}  // namespace dynapipe
