#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <dynapipe/batch/suffix_sums.hpp>
#include <dynapipe/core/arithmetic.hpp>

namespace dynapipe::detail {

/// Weights of t_max and sum in the scaled objective.
struct objective_weights {
  wide_int t_max;
  wide_int sum;

  [[nodiscard]] wide_int of(std::int64_t t, std::int64_t all) const { return t_max * t + sum * all; }
};

/// Searches all limits of t_max for the least objective, and notes every (t_max, sum) that it meets.
///
/// Let S(T) be the least sum of cuts whose micro-batches take T at most. S falls as T grows, so no objective in an
/// interval [lo, hi] of limits is below that of (lo, S(hi)). Intervals that this rules out are dropped, the others cut
/// where it begins to, and halved; the most promising first. A cut found for T whose slowest micro-batch takes a < T
/// also answers [a, T].
template <class Kernel>
class limit_search {
 public:
  struct point {
    cut_times times;
    wide_int objective;
  };

  limit_search(Kernel& kernel, objective_weights weights)
      : kernel_{kernel}, weights_{weights}, sums_{kernel.samples()} {
    const std::int64_t least = kernel_.least_limit();
    const cut_times loosest = solve(kernel_.most_limit());
    if (loosest.t_max == least) return;
    solve(least);
    push(least + 1, loosest.t_max - 1, loosest.sum);
  }

  /// Goes on until no limit can give less than the best.
  void run() {
    while (!open_.empty()) {
      std::pop_heap(open_.begin(), open_.end(), later);
      interval now = open_.back();
      open_.pop_back();
      const wide_int wanted = best_->objective;
      if (now.bound > wanted || (now.bound == wanted && now.lo >= best_->times.t_max)) continue;
      // Above this limit the sum of the whole interval is no better than what is known.
      if (weights_.t_max > 0) now.hi = std::min(now.hi, saturate((wanted - weights_.sum * now.sum) / weights_.t_max));
      const std::int64_t middle = now.lo + (now.hi - now.lo) / 2;
      const cut_times found = solve(middle);
      push(middle + 1, now.hi, now.sum);
      push(now.lo, found.t_max - 1, found.sum);
    }
  }

  [[nodiscard]] const point& best() const { return *best_; }
  [[nodiscard]] const std::vector<std::size_t>& cuts() const { return cuts_; }
  /// Limits that were solved.
  [[nodiscard]] std::size_t tried() const { return points_.size(); }
  /// Everything found, in the order of the search.
  [[nodiscard]] const std::vector<point>& points() const { return points_; }

  /// Solves one more limit, not below the kernel's least.
  cut_times solve(std::int64_t limit) {
    const cut_times found = *kernel_.solve(limit, sums_);
    points_.push_back({found, weights_.of(found.t_max, found.sum)});
    const point& now = points_.back();
    if (!best_ || now.objective < best_->objective ||
        (now.objective == best_->objective && found.t_max < best_->times.t_max)) {
      best_ = now;
      cuts_ = sums_.cuts();
    }
    return found;
  }
  /// The cut of the limit solved last.
  [[nodiscard]] std::vector<std::size_t> last_cuts() const { return sums_.cuts(); }

 private:
  struct interval {
    std::int64_t lo;
    std::int64_t hi;
    std::int64_t sum;  ///< no limit of the interval allows less
    wide_int bound;
  };
  static bool later(const interval& a, const interval& b) {
    return a.bound != b.bound ? a.bound > b.bound : a.lo > b.lo;
  }

  void push(std::int64_t lo, std::int64_t hi, std::int64_t sum) {
    if (lo > hi) return;
    open_.push_back({lo, hi, sum, weights_.of(lo, sum)});
    std::push_heap(open_.begin(), open_.end(), later);
  }

  Kernel& kernel_;
  objective_weights weights_;
  suffix_sums<> sums_;
  std::vector<interval> open_;
  std::vector<point> points_;
  std::optional<point> best_;
  std::vector<std::size_t> cuts_;
};

}  // namespace dynapipe::detail
