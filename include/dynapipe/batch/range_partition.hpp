#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <dynapipe/batch/limit_search.hpp>
#include <dynapipe/batch/partition.hpp>
#include <dynapipe/batch/suffix_sums.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/units.hpp>

namespace dynapipe {

namespace detail {

/// The dynamic program over all ranges, whose times may rise and fall with the count.
template <class Lazy = void>
class range_kernel {
 public:
  /// Times of the ranges that begin with each sample, by count, as far as they fit.
  explicit range_kernel(std::vector<std::vector<std::int64_t>> times) : times_{std::move(times)} {
    least_limit_ = least_bottleneck();
    for (const auto& row : times_)
      for (const std::int64_t t : row)
        most_limit_ = std::max(most_limit_, t);
  }

  [[nodiscard]] std::size_t samples() const { return times_.size(); }
  [[nodiscard]] std::int64_t least_limit() const { return least_limit_; }
  [[nodiscard]] std::int64_t most_limit() const { return most_limit_; }
  [[nodiscard]] std::int64_t time_of(std::size_t first, std::size_t count) const { return times_[first][count - 1]; }

  /// Solves for ranges that take `limit` at most, not below the least limit.
  std::optional<cut_times> solve(std::int64_t limit, suffix_sums<>& sums) const {
    for (std::size_t i = samples(); i-- > 0;) {
      sums.least[i] = int64_limit;
      sums.taken[i] = 0;
      for (std::size_t count = 1; count <= times_[i].size(); ++count) {
        if (times_[i][count - 1] > limit || sums.least[i + count] == int64_limit) continue;
        const std::int64_t sum = saturating_add(times_[i][count - 1], sums.least[i + count]);
        if (sum > sums.least[i]) continue;
        sums.least[i] = sum;
        sums.taken[i] = static_cast<std::uint32_t>(count);
      }
    }
    if (sums.taken[0] == 0) return std::nullopt;
    std::int64_t most = 0;
    for (std::size_t i = 0; i < samples(); i += sums.taken[i])
      most = std::max(most, time_of(i, sums.taken[i]));
    return cut_times{most, sums.least[0]};
  }

 private:
  /// The least t_max that any cut has.
  [[nodiscard]] std::int64_t least_bottleneck() const {
    std::vector<std::int64_t> least(samples() + 1, int64_limit);
    least.back() = 0;
    for (std::size_t i = samples(); i-- > 0;)
      for (std::size_t count = 1; count <= times_[i].size(); ++count)
        least[i] = std::min(least[i], std::max(times_[i][count - 1], least[i + count]));
    return least.front();
  }

  std::vector<std::vector<std::int64_t>> times_;
  std::int64_t least_limit_ = 0;
  std::int64_t most_limit_ = 0;
};

}  // namespace detail

/// As `partition`, for micro-batches whose time is not that of a padded shape of one row a sample: packed rows, say.
///
/// `time(first, count)` gives the time of samples first .. first + count - 1 as one micro-batch, none where it does not
/// fit; longer ranges from the same first sample are not looked at then. Times may rise and fall with the count.
///
/// Guarantee: optimal over all cuts of the ranges looked at; none where a sample alone does not fit. O(n w) time for
/// each limit and 8 n w bytes, w being the most samples that fit.
template <class RangeTime>
[[nodiscard]] std::optional<partition_result> partition_ranges(std::size_t samples, RangeTime&& time,
                                                               const partition_options& options) {
  DYNAPIPE_ASSERT(options.devices > 0 && options.replicas > 0 && options.stages_per_device > 0);
  if (samples == 0) return partition_result{};
  std::vector<std::vector<std::int64_t>> times(samples);
  for (std::size_t first = 0; first < samples; ++first) {
    for (std::size_t count = 1; first + count <= samples; ++count) {
      const std::optional<nanoseconds> t = time(first, count);
      if (!t) break;
      times[first].push_back(t->value());
    }
    if (times[first].empty()) return std::nullopt;
  }
  detail::range_kernel<> kernel{std::move(times)};
  detail::limit_search search{kernel, detail::weights_of(options)};
  search.run();
  return detail::timed(kernel, search.cuts());
}

}  // namespace dynapipe
