#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <dynapipe/batch/limit_search.hpp>
#include <dynapipe/batch/shape_budget_times.hpp>
#include <dynapipe/batch/suffix_sums.hpp>
#include <dynapipe/core/arithmetic.hpp>

namespace dynapipe::detail {

/// The shape budget for few samples, longest first, exactly; a kernel for `limit_search`.
///
/// least[k][p], the least sum for the samples from p on with k shapes, is the minimum over rows r and counts c of
/// c * time(r, lengths of p) + least[k - 1][p + r c], r within the limit. All of them are tried: O(K n^2 log n) for a
/// limit, 32 bytes for each sample and shape.
template <class Times>
class budget_exact {
 public:
  budget_exact(Times& times, std::size_t shapes, objective_weights weights)
      : times_{times}, weights_{weights}, shapes_{std::min(shapes, times.samples())} {}

  [[nodiscard]] std::size_t samples() const { return times_.samples(); }
  [[nodiscard]] std::int64_t least_limit() const { return times_.at(0, 1); }
  [[nodiscard]] std::int64_t most_limit() const {
    std::int64_t most = 0;
    for (std::size_t g = 0; g < times_.runs(); ++g)
      most = std::max(most, times_.at(g, times_.most(g)));
    return most;
  }

  std::optional<cut_times> solve(std::int64_t limit, suffix_sums<>& sums) {
    const std::size_t n = samples();
    const std::size_t width = n + 1;
    cells_.assign((shapes_ + 1) * width, {});
    for (std::size_t k = 0; k <= shapes_; ++k)
      cells_[k * width + n].least = 0;
    for (std::size_t k = 1; k <= shapes_; ++k)
      for (std::size_t p = 0; p < n; ++p) {
        cell best = cells_[(k - 1) * width + p];
        const std::size_t g = times_.run_at(p);
        for (std::int64_t rows = times_.most_within(g, limit); rows > 0; --rows)
          extend(best, {rows, 0}, p, times_.at(g, rows), cells_.data() + (k - 1) * width);
        cells_[k * width + p] = best;
      }
    const shape_chain now = best_chain();
    std::fill(sums.taken.begin(), sums.taken.end(), 1U);
    const chain_value value = times_.judge(now, weights_);
    if (value.better_than(best_value_)) {
      best_value_ = value;
      best_ = now;
    }
    return value.times;
  }

  /// The best that any call of `solve` found.
  [[nodiscard]] const shape_chain& best() const { return best_; }

 private:
  struct cell {
    std::int64_t least = int64_limit;
    chain_item item{};
    std::uint32_t layer = 0;  ///< shapes left after the item
  };

  void extend(cell& best, chain_item item, std::size_t p, std::int64_t t, const cell* rest) const {
    const std::size_t n = samples();
    const auto layer = static_cast<std::uint32_t>((rest - cells_.data()) / static_cast<std::ptrdiff_t>(n + 1));
    while (p < n) {
      ++item.count;
      p = std::min(n, p + static_cast<std::size_t>(item.rows));
      const std::int64_t sum = saturating_add(saturating_mul(t, item.count), rest[p].least);
      if (sum < best.least) best = {sum, item, layer};
    }
  }

  [[nodiscard]] shape_chain best_chain() const {
    shape_chain result;
    std::size_t k = shapes_;
    for (std::size_t p = 0; p < samples();) {
      const cell& now = cells_[k * (samples() + 1) + p];
      result.push_back(now.item);
      p = std::min(samples(), p + static_cast<std::size_t>(now.item.rows * now.item.count));
      k = now.layer;
    }
    return result;
  }

  Times& times_;
  objective_weights weights_;
  std::size_t shapes_;
  std::vector<cell> cells_;
  shape_chain best_;
  chain_value best_value_;
};

}  // namespace dynapipe::detail
