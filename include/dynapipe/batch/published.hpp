#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <dynapipe/batch/partition.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

/// A cut by DynaPipe's own program, with what the program knows of it.
struct published_cut {
  partition_result cut;        ///< `t_max` is that of its slowest micro-batch
  nanoseconds candidate{0};    ///< the t_max that was chosen, and counted in the objective; at least `cut.t_max`
  std::size_t candidates = 0;  ///< values of t_max that were tried

  /// The objective that the program reports: as `partition_result::scaled_objective`, of `candidate`.
  [[nodiscard]] wide_int reported_objective(const partition_options& options) const {
    return partition_result{.cuts = {}, .t_max = candidate, .sum = cut.sum}.scaled_objective(options);
  }
};

/// The width of the published program's grid: 5 of the cost model's unit, which is milliseconds in its profiles.
inline constexpr nanoseconds published_grid{5'000'000};

namespace detail {

/// Times in nanoseconds of the ranges that begin with each sample, by count, as far as they fit.
struct range_times {
  std::vector<std::int64_t> times;
  std::vector<std::size_t> ends;  ///< where each sample's ranges end in `times`
};

/// The least sum with every time at most `limit`, as the published program breaks ties: of equal sums the smallest
/// position of the last cut, for every prefix. Cuts are left in `from`. None where no cut is within the limit.
template <class Lazy = void>
[[nodiscard]] std::optional<std::int64_t> published_sum(const range_times& ranges, std::int64_t limit,
                                                        std::vector<std::int64_t>& least,
                                                        std::vector<std::size_t>& from) {
  const std::size_t n = ranges.ends.size();
  least.assign(n + 1, int64_limit);
  from.assign(n + 1, n);
  least[0] = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < n; begin = ranges.ends[i++]) {
    if (i > 0 && from[i] == n) continue;
    for (std::size_t k = begin; k < ranges.ends[i]; ++k) {
      const std::size_t end = i + 1 + k - begin;
      const std::int64_t sum = saturating_add(least[i], ranges.times[k]);
      if (ranges.times[k] > limit || (from[end] != n && sum >= least[end])) continue;
      least[end] = sum;
      from[end] = i;
    }
  }
  if (from[n] == n) return std::nullopt;
  return least[n];
}

template <class Lazy = void>
[[nodiscard]] std::optional<published_cut> published_search(const range_times& ranges, const partition_options& options,
                                                            nanoseconds grid) {
  std::vector<std::int64_t> limits = ranges.times;
  std::sort(limits.begin(), limits.end());
  std::size_t kept = 0;
  for (const std::int64_t limit : limits)
    if (kept == 0 || limit - limits[kept - 1] > grid.value()) limits[kept++] = limit;
  limits.resize(kept);

  std::optional<published_cut> best;
  std::vector<std::int64_t> least;
  std::vector<std::size_t> from;
  for (const std::int64_t limit : limits) {
    const std::optional<std::int64_t> sum = published_sum(ranges, limit, least, from);
    if (!sum) continue;
    published_cut next{.cut = {.cuts = {}, .sum = nanoseconds{*sum}}, .candidate = nanoseconds{limit}};
    if (best && next.reported_objective(options) >= best->reported_objective(options)) continue;
    for (std::size_t end = from.size() - 1; end > 0; end = from[end]) {
      next.cut.cuts.push_back(from[end]);
      const std::size_t begin = from[end] == 0 ? 0 : ranges.ends[from[end] - 1];
      next.cut.t_max = std::max(next.cut.t_max, nanoseconds{ranges.times[begin + end - from[end] - 1]});
    }
    std::reverse(next.cut.cuts.begin(), next.cut.cuts.end());
    best = std::move(next);
  }
  if (best) best->candidates = kept;
  return best;
}

}  // namespace detail

/// DynaPipe's cut of ordered samples, as published and as its program does it: a baseline for `partition`.
///
/// Problem: as `partition` (arXiv 2311.10418, section 4.2). Method of the program (data_opt/dp_helper.cpp): the times
/// of all ranges that fit, sorted, are the candidates for t_max; of candidates within `grid` of the one kept before,
/// none is kept, so that the smallest of each group stands for all. For each, a dynamic program over the position of
/// the last cut finds the least sum with no time above it; the candidate of least (devices - 1) * t_max /
/// stages_per_device
/// + sum / replicas wins, of equal ones the smallest.
///
/// So the answer is as coarse as the grid: where the longest sample's own time is dropped and no larger candidate is
/// left, a batch that fits is refused, and the answer depends on the unit of time. With a grid of 0 it is exact.
///
/// `time(first, count)` gives the time of `count` samples from `first` on, on one device, none where they do not fit;
/// ranges beyond the first that does not fit are not asked for. Times are >= 0. None where no candidate leads to a cut.
///
/// What differs: integers instead of 32-bit floats; ranges that do not fit are not visited; nothing to cut is a cut of
/// no micro-batch, which the program refuses.
///
/// Complexity: O(R log R + T R) for R ranges that fit, one call of `time` for each, and T candidates kept: for n
/// samples of which any range fits O(T n^2). Memory: 16 bytes a range.
template <class RangeTime>
[[nodiscard]] std::optional<published_cut> published_partition(std::size_t samples, RangeTime&& time,
                                                               const partition_options& options,
                                                               nanoseconds grid = published_grid) {
  DYNAPIPE_ASSERT(options.devices > 0 && options.replicas > 0 && options.stages_per_device > 0);
  if (samples == 0) return published_cut{};
  detail::range_times ranges;
  ranges.ends.reserve(samples);
  for (std::size_t first = 0; first < samples; ++first) {
    for (std::size_t count = 1; first + count <= samples; ++count) {
      const std::optional<nanoseconds> t = time(first, count);
      if (!t) break;
      ranges.times.push_back(t->value());
    }
    ranges.ends.push_back(ranges.times.size());
  }
  return detail::published_search(ranges, options, grid);
}

/// The same for padded rows, one sample a row: `time(shape)` as for `partition`.
template <class ShapeTime>
[[nodiscard]] std::optional<published_cut> published_partition(std::span<const sample_lengths> ordered,
                                                               const shape_options& shapes, ShapeTime&& time,
                                                               const partition_options& options,
                                                               nanoseconds grid = published_grid) {
  shape range;
  return published_partition(
      ordered.size(),
      [&](std::size_t first, std::size_t count) -> std::optional<nanoseconds> {
        if (count == 1) range = {};
        const sample_lengths& s = ordered[first + count - 1];
        range = {range.rows + 1, std::max(range.input, padded_length(s.input, shapes)),
                 std::max(range.target, s.target > 0 ? padded_length(s.target, shapes) : 0)};
        return time(range);
      },
      options, grid);
}

}  // namespace dynapipe
