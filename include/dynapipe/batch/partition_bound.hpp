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
  std::vector<shape> alone = detail::padded_alone(samples, shapes);
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

}  // namespace dynapipe
