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

/// Times of all ranges that fit, by first sample: `row(i)[n - 1]` is the time of the n samples from i on.
///
/// With one length, longest first, the shape of a range depends only on its first padded length and its count: samples
/// of equal padded length share a row.
template <class Lazy>
class range_times {
 public:
  /// Rows end before ranges that take longer than `useful`, but hold every sample that fits alone.
  template <class ShapeTime>
  range_times(std::span<const sample_lengths> ordered, const shape_options& shapes, ShapeTime&& time,
              std::int64_t useful) {
    const std::size_t n = ordered.size();
    const auto padded = [&](std::size_t i) { return padded_length(ordered[i].input, shapes); };
    const bool shares =
        std::all_of(ordered.begin(), ordered.end(), [](const auto& s) { return s.target == 0; }) &&
        std::is_sorted(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.input > b.input; });
    rows_.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
      if (i > 0 && shares && padded(i) == padded(i - 1)) {
        rows_.push_back({rows_.back().begin, std::min(rows_.back().count, n - i)});
        continue;
      }
      const std::size_t begin = times_.size();
      shape s;
      for (std::size_t j = i; j < n; ++j) {
        s.rows += 1;
        s.input = std::max(s.input, padded(j));
        if (ordered[j].target > 0) s.target = std::max(s.target, padded_length(ordered[j].target, shapes));
        const std::optional<nanoseconds> t = time(s);
        if (!t || (j > i && t->value() > useful)) break;
        times_.push_back(t->value());
      }
      rows_.push_back({begin, times_.size() - begin});
    }
  }

  [[nodiscard]] std::size_t samples() const { return rows_.size(); }
  [[nodiscard]] std::span<const std::int64_t> row(std::size_t i) const {
    return std::span{times_}.subspan(rows_[i].begin, rows_[i].count);
  }

 private:
  struct extent {
    std::size_t begin;
    std::size_t count;
  };
  std::vector<std::int64_t> times_;
  std::vector<extent> rows_;
};

/// No cut that is better than one sample in each micro-batch has a micro-batch that takes longer than this: its own
/// time would count towards t_max and towards the sum. None where some sample alone does not fit. O(n).
template <class ShapeTime>
std::optional<std::int64_t> useful_time(std::span<const sample_lengths> ordered, const shape_options& shapes,
                                        ShapeTime&& time, const partition_options& options) {
  partition_result alone;
  wide_int sum = 0;
  for (const sample_lengths& s : ordered) {
    const std::optional<nanoseconds> t =
        time(shape{1, padded_length(s.input, shapes), s.target > 0 ? padded_length(s.target, shapes) : 0});
    if (!t) return std::nullopt;
    alone.t_max = std::max(alone.t_max, *t);
    sum += t->value();
  }
  alone.sum = nanoseconds{saturate(sum)};
  const partition_result one{.cuts = {}, .t_max = nanoseconds{1}, .sum = nanoseconds{1}};
  return saturate(alone.scaled_objective(options) / one.scaled_objective(options));
}

/// The cut of least sum among those whose micro-batches all take at most `limit`; of equal sums, the one with the
/// largest first micro-batches. None where some sample alone takes longer. O(samples x longest row).
template <class Lazy>
std::optional<partition_result> least_sum(const range_times<Lazy>& times, std::int64_t limit) {
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
  const std::optional<std::int64_t> useful = detail::useful_time(ordered, shapes, time, options);
  if (!useful) return std::nullopt;
  const detail::range_times<ShapeTime> times{ordered, shapes, time, *useful};

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
