#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <dynapipe/batch/limit_search.hpp>
#include <dynapipe/batch/line_kernel.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/batch/split_counts.hpp>
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
  /// The number of micro-batches, of all replicas together, is a multiple of it (replicas x stages of a virtual
  /// pipeline).
  std::int64_t count_multiple = 1;
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

[[nodiscard]] inline objective_weights weights_of(const partition_options& options) {
  return {static_cast<wide_int>(options.devices - 1) * options.replicas, options.stages_per_device};
}

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

/// A cut with its times.
template <class Kernel>
[[nodiscard]] partition_result timed(const Kernel& kernel, std::vector<std::size_t> cuts) {
  partition_result result{std::move(cuts)};
  wide_int sum = 0;
  for (std::size_t m = 0; m < result.cuts.size(); ++m) {
    const std::size_t end = m + 1 < result.cuts.size() ? result.cuts[m + 1] : kernel.samples();
    const std::int64_t t = kernel.time_of(result.cuts[m], end - result.cuts[m]);
    result.t_max = std::max(result.t_max, nanoseconds{t});
    sum += t;
  }
  result.sum = nanoseconds{saturate(sum)};
  return result;
}

/// Calls `use(kernel)` with the kernel that suits the samples; false where some sample alone does not fit.
template <class ShapeTime, class Use>
bool with_kernel(std::span<const sample_lengths> ordered, const shape_options& shapes, ShapeTime& time,
                 const partition_options& options, Use&& use) {
  const std::vector<shape> alone = padded_alone(ordered, shapes);
  const std::vector<sample_run> runs = runs_of(alone);
  if (options.convex_rows && is_sorted_by_length(alone)) {
    if (auto lines = line_kernel<>::make(runs, time)) {
      use(*lines);
      return true;
    }
  }
  const std::optional<std::int64_t> useful = useful_time(runs, time, weights_of(options));
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
/// With `count_multiple` the optimum is split further where that adds the least (`detail::split_to_multiple`), which is
/// not always the best cut of such a number.
/// Complexity: a dozen dynamic programs in practice; O(n) each, and 28 bytes a sample, with lines, else O(n w), n
/// samples with at most w in a micro-batch.
///
/// @throws unsatisfiable where there are too few samples for `count_multiple`.
template <class ShapeTime>
[[nodiscard]] std::optional<partition_result> partition(std::span<const sample_lengths> ordered,
                                                        const shape_options& shapes, ShapeTime&& time,
                                                        const partition_options& options) {
  DYNAPIPE_ASSERT(options.devices > 0 && options.replicas > 0 && options.stages_per_device > 0 &&
                  options.count_multiple > 0);
  if (ordered.empty()) return partition_result{};
  std::optional<partition_result> result;
  detail::with_kernel(ordered, shapes, time, options, [&](auto& kernel) {
    detail::limit_search search{kernel, detail::weights_of(options)};
    search.run();
    result =
        partition_result{search.cuts(), nanoseconds{search.best().times.t_max}, nanoseconds{search.best().times.sum}};
    if (static_cast<std::int64_t>(result->cuts.size()) % options.count_multiple == 0) return;
    detail::split_to_multiple(kernel, result->cuts, options.count_multiple);
    *result = detail::timed(kernel, std::move(result->cuts));
  });
  return result;
}

}  // namespace dynapipe
