#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <dynapipe/batch/line_kernel.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/batch/suffix_sums.hpp>
#include <dynapipe/batch/window_kernel.hpp>
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
  /// The caller's word that times are convex in rows as far as they fit: for given lengths, one row more never adds
  /// less than the row before. `pipeline_costs::convex_rows` says so of a cost model.
  bool convex_rows = false;
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

/// Weights of t_max and sum in the scaled objective.
struct objective_weights {
  wide_int t_max;
  wide_int sum;

  explicit objective_weights(const partition_options& options)
      : t_max{static_cast<wide_int>(options.devices - 1) * options.replicas}, sum{options.stages_per_device} {}
  [[nodiscard]] wide_int of(std::int64_t t, std::int64_t all) const { return t_max * t + sum * all; }
};

/// No cut that is better than one sample in each micro-batch has a micro-batch that takes longer than this: its own
/// time would count towards t_max and towards the sum. None where some sample alone does not fit. O(n).
template <class ShapeTime>
std::optional<std::int64_t> useful_time(std::span<const sample_run> runs, ShapeTime& time,
                                        const objective_weights& weights) {
  std::int64_t t_max = 0;
  wide_int sum = 0;
  for (const sample_run& r : runs) {
    const std::optional<nanoseconds> t = time(r.alone);
    if (!t) return std::nullopt;
    t_max = std::max(t_max, t->value());
    sum += static_cast<wide_int>(t->value()) * static_cast<wide_int>(r.end - r.begin);
  }
  return saturate(weights.of(t_max, saturate(sum)) / weights.of(1, 1));
}

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
    const cut_times tightest = solve(least);
    push(least + 1, loosest.t_max - 1, loosest.sum);
    (void)tightest;
  }

  /// Goes on until no limit can give less than the best, times 1 + slack / 2^10, or `most` limits have been tried.
  void run(std::int64_t slack = 0, std::size_t most = static_cast<std::size_t>(-1)) {
    while (!open_.empty() && tried_ < most) {
      std::pop_heap(open_.begin(), open_.end(), later);
      interval now = open_.back();
      open_.pop_back();
      const wide_int wanted = best_->objective + best_->objective * slack / 1024;
      // Limits at which (limit, sum of the loosest) is no better than what is wanted.
      const bool ties = slack == 0;
      if (now.bound > wanted || (now.bound == wanted && ties && now.lo >= best_->times.t_max)) continue;
      if (weights_.t_max > 0) {
        const wide_int room = (wanted - weights_.sum * now.sum) / weights_.t_max;
        now.hi = std::min(now.hi, saturate(room));
      }
      const std::int64_t middle = now.lo + (now.hi - now.lo) / 2;
      const cut_times found = solve(middle);
      push(middle + 1, now.hi, now.sum);
      push(now.lo, found.t_max - 1, found.sum);
    }
  }

  [[nodiscard]] const point& best() const { return *best_; }
  [[nodiscard]] const std::vector<std::size_t>& cuts() const { return cuts_; }
  [[nodiscard]] std::size_t tried() const { return tried_; }
  /// Everything found, in the order of the search.
  [[nodiscard]] const std::vector<point>& points() const { return points_; }

  /// The cut of least sum for a limit that some point has.
  [[nodiscard]] std::vector<std::size_t> cuts_at(std::int64_t limit) {
    kernel_.solve(limit, sums_);
    return sums_.cuts();
  }

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

  cut_times solve(std::int64_t limit) {
    ++tried_;
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

  Kernel& kernel_;
  objective_weights weights_;
  suffix_sums sums_;
  std::vector<interval> open_;
  std::vector<point> points_;
  std::optional<point> best_;
  std::vector<std::size_t> cuts_;
  std::size_t tried_ = 0;
};

/// Calls `use(kernel)` with the kernel that suits the samples; false where some sample alone does not fit.
template <class ShapeTime, class Use>
bool with_kernel(std::span<const sample_lengths> ordered, const shape_options& shapes, ShapeTime& time,
                 const partition_options& options, Use&& use) {
  std::vector<shape> alone;
  alone.reserve(ordered.size());
  for (const sample_lengths& s : ordered)
    alone.push_back({1, padded_length(s.input, shapes), s.target > 0 ? padded_length(s.target, shapes) : 0});
  const std::vector<sample_run> runs = runs_of(alone);
  if (options.convex_rows && is_sorted_by_length(alone)) {
    if (auto lines = line_kernel<>::make(runs, time)) {
      use(*lines);
      return true;
    }
  }
  const std::optional<std::int64_t> useful = useful_time(runs, time, objective_weights{options});
  if (!useful) return false;
  auto table = window_kernel<>::make(alone, time, *useful, options.convex_rows);
  if (!table) return false;
  use(*table);
  return true;
}

}  // namespace detail

/// Cuts ordered samples into contiguous micro-batches, exactly.
///
/// Problem: minimise (devices - 1) * t_max / stages_per_device + sum / replicas, where t_max is the largest and sum the
/// sum of the micro-batches' times on one device: the length of a pipeline that its slowest micro-batch fills and
/// drains (DynaPipe, arXiv 2311.10418, section 4.2). Unlike the published method, which tries t_max on a grid, the
/// optimum here is over every possible t_max.
///
/// Method: `detail::limit_search` over t_max; for each limit a dynamic program over the position of the last cut. For
/// samples of one length each, longest first, and times that are convex in rows, `detail::line_kernel` solves it with
/// sliding-window minima in near-linear time; otherwise `detail::window_kernel` looks at every micro-batch that fits.
///
/// `time(shape)` gives the time of one micro-batch on one device, none where it does not fit the memory; it must not
/// fall, nor fit again, when rows or a length grow. Target lengths of 0 throughout mean a decoder-only model.
///
/// Guarantee: optimal; of equal objectives the smallest t_max, of equal sums the larger first micro-batches. For one
/// length, longest first, no cut of any kind is better, contiguous or not: dealing the samples anew, longest first, to
/// the same numbers of rows makes no micro-batch longer. None is returned exactly where some sample alone does not fit.
/// Complexity: a dozen dynamic programs in practice; O(n) each, and 28 bytes a sample, with lines, else O(n w), n
/// samples with at most w in a micro-batch.
template <class ShapeTime>
[[nodiscard]] std::optional<partition_result> partition(std::span<const sample_lengths> ordered,
                                                        const shape_options& shapes, ShapeTime&& time,
                                                        const partition_options& options) {
  DYNAPIPE_ASSERT(options.devices > 0 && options.replicas > 0 && options.stages_per_device > 0);
  if (ordered.empty()) return partition_result{};
  std::optional<partition_result> result;
  detail::with_kernel(ordered, shapes, time, options, [&](auto& kernel) {
    detail::limit_search search{kernel, detail::objective_weights{options}};
    search.run();
    result =
        partition_result{search.cuts(), nanoseconds{search.best().times.t_max}, nanoseconds{search.best().times.sum}};
  });
  return result;
}

}  // namespace dynapipe
