#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/shape.hpp>
#include <dynapipe/cost/shape_table.hpp>

namespace dynapipe {

/// What a partition is for.
struct partition_options {
  std::int64_t devices = 1;  ///< pipeline devices of one replica
  std::int64_t replicas = 1;
  std::int64_t stages_per_device = 1;
};

/// A cut of ordered samples into micro-batches.
struct partition_result {
  std::vector<std::size_t> cuts;  ///< position of the first sample of each micro-batch
  nanoseconds t_max{0};           ///< time of the slowest micro-batch on one device
  nanoseconds sum{0};             ///< of all micro-batches' times

  /// stages_per_device * replicas * ((devices - 1) * t_max / stages_per_device + sum / replicas), which is an integer.
  [[nodiscard]] wide_int scaled_objective(const partition_options& options) const {
    return static_cast<wide_int>(options.devices - 1) * options.replicas * t_max.value() +
           static_cast<wide_int>(options.stages_per_device) * sum.value();
  }
};

namespace detail {

/// No cut that is better than one sample in each micro-batch has a micro-batch that takes longer than this: its own
/// time would count towards t_max and towards the sum. None where some sample alone does not fit. O(n).
template <class ShapeTime>
std::optional<nanoseconds> useful_time(std::span<const shape> alone, ShapeTime&& time,
                                       const partition_options& options) {
  partition_result single;
  wide_int sum = 0;
  for (const shape& s : alone) {
    const std::optional<nanoseconds> t = time(s);
    if (!t) return std::nullopt;
    single.t_max = std::max(single.t_max, *t);
    sum += t->value();
  }
  single.sum = nanoseconds{saturate(sum)};
  const partition_result one{.cuts = {}, .t_max = nanoseconds{1}, .sum = nanoseconds{1}};
  return nanoseconds{saturate(single.scaled_objective(options) / one.scaled_objective(options))};
}

/// The cut of least sum among those whose micro-batches all take at most `limit`; of equal sums, the one with the
/// largest first micro-batches. None where some sample alone takes longer. O(samples x longest row).
template <class Lazy = void>
std::optional<partition_result> least_sum(const shape_table& times, std::int64_t limit) {
  const std::size_t n = times.samples();
  std::vector<std::int64_t> best(n + 1, 0);
  std::vector<std::size_t> taken(n, 0);
  for (std::size_t i = n; i-- > 0;) {
    std::int64_t least = int64_limit;
    const std::span<const std::int64_t> row = times.row(i);
    for (std::size_t count = 1; count <= row.size() && row[count - 1] <= limit; ++count) {
      const std::int64_t sum = saturating_add(row[count - 1], best[i + count]);
      if (sum <= least) {
        least = sum;
        taken[i] = count;
      }
    }
    if (taken[i] == 0) return std::nullopt;
    best[i] = least;
  }
  partition_result result{.cuts = {}, .sum = nanoseconds{best[0]}};
  for (std::size_t i = 0; i < n; i += taken[i]) {
    result.cuts.push_back(i);
    result.t_max = std::max(result.t_max, nanoseconds{times.row(i)[taken[i] - 1]});
  }
  return result;
}

}  // namespace detail

/// Cuts ordered samples into contiguous micro-batches, exactly.
///
/// Problem: minimise (devices - 1) * t_max / stages_per_device + sum / replicas, where t_max is the largest and sum the
/// sum of the micro-batches' times on one device: the length of a pipeline that its slowest micro-batch fills and
/// drains (DynaPipe, arXiv 2311.10418, section 4.2). Unlike the published method, which tries t_max on a grid, the
/// optimum here is over every possible t_max.
///
/// Method: let S(T) be the least sum with all times <= T, by a dynamic program over the position of the last cut. S
/// falls as T grows, so over an interval [lo, hi] of T no objective is below that of (lo, S(hi)). Intervals that this
/// rules out are dropped; others are halved. A solution at T whose slowest micro-batch takes a < T also answers [a, T].
///
/// `time(shape)` gives the time of one micro-batch on one device, none where it does not fit the memory; it must not
/// fall, nor fit again, when rows or a length grow. Target lengths of 0 throughout mean a decoder-only model.
///
/// Guarantee: optimal; of equal objectives the smallest t_max. None is returned exactly where some sample alone does
/// not fit. Complexity: O(n w) time and memory for one dynamic program, n samples with ranges of at most w that fit,
/// and one program for each interval that is not ruled out: in practice a few tens.
template <class ShapeTime>
[[nodiscard]] std::optional<partition_result> partition(std::span<const sample_lengths> ordered,
                                                        const shape_options& shapes, ShapeTime&& time,
                                                        const partition_options& options) {
  DYNAPIPE_ASSERT(options.devices > 0 && options.replicas > 0 && options.stages_per_device > 0);
  if (ordered.empty()) return partition_result{};
  std::vector<shape> alone;
  alone.reserve(ordered.size());
  for (const sample_lengths& s : ordered)
    alone.push_back({1, padded_length(s.input, shapes), s.target > 0 ? padded_length(s.target, shapes) : 0});
  const std::optional<nanoseconds> useful = detail::useful_time(alone, time, options);
  if (!useful) return std::nullopt;
  const shape_table times{alone, time, *useful};

  std::int64_t least = 0;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < times.samples(); ++i) {
    const auto row = times.row(i);
    least = std::max(least, row.front());
    most = std::max(most, row.back());
  }

  std::optional<partition_result> best;
  const auto key = [&](const partition_result& r) { return r.scaled_objective(options); };
  const auto solve = [&](std::int64_t limit) {
    std::optional<partition_result> found = detail::least_sum(times, limit);
    if (found && (!best || key(*found) < key(*best) || (key(*found) == key(*best) && found->t_max < best->t_max)))
      best = found;
    return found;
  };

  /// Limits still to try, with the least sum that any of them allows.
  struct interval {
    std::int64_t lo = 0;
    std::int64_t hi = 0;
    nanoseconds sum{0};
  };
  std::vector<interval> open;
  const auto push = [&](std::int64_t lo, std::int64_t hi, nanoseconds sum) {
    if (lo <= hi) open.push_back({lo, hi, sum});
  };
  const std::optional<partition_result> loosest = solve(most);
  if (!loosest) return std::nullopt;
  push(least, loosest->t_max.value() - 1, loosest->sum);
  while (!open.empty()) {
    const interval now = open.back();
    open.pop_back();
    const wide_int bound = key({.cuts = {}, .t_max = nanoseconds{now.lo}, .sum = now.sum});
    if (bound > key(*best) || (bound == key(*best) && now.lo >= best->t_max.value())) continue;
    const std::int64_t middle = now.lo + (now.hi - now.lo) / 2;
    const std::optional<partition_result> found = solve(middle);
    push(middle + 1, now.hi, now.sum);
    if (found) push(now.lo, found->t_max.value() - 1, found->sum);
  }
  return best;
}

}  // namespace dynapipe
