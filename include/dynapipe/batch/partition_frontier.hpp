#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <dynapipe/batch/limit_search.hpp>
#include <dynapipe/batch/partition.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/units.hpp>

namespace dynapipe {

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
