#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/batch/constraint.hpp>
#include <dynapipe/batch/partition.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>

namespace dynapipe {

/// Samples on replicas, all of them cut at the same places.
struct deal_result {
  std::vector<std::vector<micro_batch>> replicas;  ///< equally many each, in the order of the samples
  std::vector<std::size_t> cuts;                   ///< the first run of each micro-batch
  nanoseconds t_max{0};                            ///< of the slowest micro-batch, of every replica at most
  nanoseconds sum{0};  ///< of the micro-batches of one replica, at most: what lock-step takes without a pipeline
};

namespace detail {

/// Runs of as many samples as there are replicas, each by its longest input and target.
template <class Lazy = void>
std::vector<sample_lengths> longest_of_runs(std::span<const sample_lengths> lengths, std::span<const sample_id> order,
                                            std::size_t replicas) {
  std::vector<sample_lengths> runs;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i % replicas == 0) runs.emplace_back();
    const sample_lengths& s = lengths[index(order[i])];
    runs.back().input = std::max(runs.back().input, s.input);
    runs.back().target = std::max(runs.back().target, s.target);
  }
  return runs;
}

/// The padded shape of the runs [from, to).
[[nodiscard]] inline shape shape_of_runs(std::span<const sample_lengths> runs, std::size_t from, std::size_t to,
                                         const shape_options& shapes) {
  shape s{static_cast<std::int64_t>(to - from), 0, 0};
  for (std::size_t i = from; i < to; ++i) {
    s.input = std::max(s.input, padded_length(runs[i].input, shapes));
    if (runs[i].target > 0) s.target = std::max(s.target, padded_length(runs[i].target, shapes));
  }
  return s;
}

/// A partition of the runs whose last micro-batch has two runs at least: that of the last two by themselves, or the
/// best one, `cut`, with its last two micro-batches joined. None where neither fits.
template <class ShapeTime>
std::optional<partition_result> without_short_end(std::span<const sample_lengths> runs, const shape_options& shapes,
                                                  ShapeTime& time, const partition_options& options,
                                                  const partition_result& cut) {
  const std::size_t n = runs.size();
  std::optional<partition_result> best;
  const auto offer = [&](std::vector<std::size_t> cuts) {
    partition_result made{std::move(cuts), nanoseconds{0}, nanoseconds{0}};
    for (std::size_t m = 0; m < made.cuts.size(); ++m) {
      const std::size_t to = m + 1 < made.cuts.size() ? made.cuts[m + 1] : n;
      const std::optional<nanoseconds> t = time(shape_of_runs(runs, made.cuts[m], to, shapes));
      if (!t) return;
      made.t_max = std::max(made.t_max, *t);
      made.sum += *t;
    }
    if (!best || made.scaled_objective(options) < best->scaled_objective(options)) best = std::move(made);
  };
  if (n < 2) return best;
  if (std::optional<partition_result> front = partition(runs.first(n - 2), shapes, time, options)) {
    front->cuts.push_back(n - 2);
    offer(std::move(front->cuts));
  }
  std::vector<std::size_t> joined = cut.cuts;
  joined.pop_back();
  offer(std::move(joined));
  return best;
}

}  // namespace detail

/// Deals ordered samples to replicas that run in lock-step, and cuts all replicas at the same places.
///
/// Problem: padded micro-batches for `options.replicas` replicas with equal counts, numbers of samples that differ by
/// one at most, and m-th micro-batches that are alike, all at once; minimise
/// (devices - 1) * t_max / stages_per_device + sum, where a step's time is that of its slowest replica.
///
/// Method: the samples, longest first, are dealt in runs of as many as there are replicas, to and fro, so that no
/// replica always has the longest. The m-th samples of all replicas are then neighbours in length. A run counts as one
/// sample, its longest, and `partition` cuts the runs exactly: that is the time of the slowest replica as if it had the
/// longest sample of each run. (NeMo-RL cuts sorted, dealt samples by a cap on tokens, for multiples of the replicas
/// alone.) The last run may have fewer samples than there are replicas: those without one have a row less. Where the
/// last micro-batch is that run alone they have a dummy of the smallest shape, or, without dummies, the last
/// micro-batch takes in the run before.
///
/// `order` lists samples as `order_by_length` does; `lengths` are by sample id. `time` is as in `partition`, none where
/// a micro-batch does not fit. Shapes are those of each replica's own samples, so none is larger than its step's.
///
/// Guarantee: the three constraints; the cut is optimal for the dealt runs, but where a short last run is joined. None
/// is returned exactly where some run alone does not fit. O(n) beside `partition` of n / R runs.
/// @throws unsatisfiable where `dummies` is false and there are fewer samples than replicas, or the short last run can
/// be joined to nothing.
template <class ShapeTime>
[[nodiscard]] std::optional<deal_result> deal(std::span<const sample_lengths> lengths, std::span<const sample_id> order,
                                              const shape_options& shapes, ShapeTime&& time,
                                              const partition_options& options, bool dummies) {
  DYNAPIPE_ASSERT(options.replicas > 0);
  const std::size_t replicas = static_cast<std::size_t>(options.replicas);
  deal_result dealt;
  dealt.replicas.resize(replicas);
  if (order.empty()) return dealt;
  const std::vector<sample_lengths> runs = detail::longest_of_runs(lengths, order, replicas);
  const std::span<const sample_lengths> all{runs};
  partition_options one = options;
  one.replicas = 1;
  std::optional<partition_result> cut = partition(all, shapes, time, one);
  if (!cut) return std::nullopt;
  const std::size_t in_last = order.size() % replicas;
  if (in_last != 0 && !dummies && cut->cuts.back() + 1 == runs.size()) {
    cut = detail::without_short_end(all, shapes, time, one, *cut);
    if (!cut)
      throw unsatisfiable{std::to_string(order.size()) + " samples dealt to " + std::to_string(replicas) +
                              " replicas leave " + std::to_string(replicas - in_last) +
                              " of them without a sample in the last micro-batch; allow dummies, or use fewer replicas",
                          batch_constraint::micro_batches};
  }
  dealt.cuts = cut->cuts;
  dealt.t_max = cut->t_max;
  dealt.sum = cut->sum;
  const bool has_target = std::any_of(runs.begin(), runs.end(), [](const sample_lengths& s) { return s.target > 0; });
  for (std::size_t m = 0; m < dealt.cuts.size(); ++m) {
    const std::size_t to = m + 1 < dealt.cuts.size() ? dealt.cuts[m + 1] : runs.size();
    for (std::size_t r = 0; r < replicas; ++r) {
      micro_batch& mb = dealt.replicas[r].emplace_back();
      for (std::size_t run = dealt.cuts[m]; run < to; ++run) {
        const std::size_t at = run * replicas + (run % 2 == 0 ? r : replicas - 1 - r);
        if (at >= order.size()) continue;
        const sample_lengths& s = lengths[index(order[at])];
        mb.samples.push_back(order[at]);
        mb.loss_tokens += s.loss;
        mb.padded.input = std::max(mb.padded.input, padded_length(s.input, shapes));
        if (s.target > 0) mb.padded.target = std::max(mb.padded.target, padded_length(s.target, shapes));
      }
      mb.padded.rows = static_cast<std::int64_t>(mb.samples.size());
      mb.dummy = mb.samples.empty();
      if (mb.dummy) mb.padded = {1, shapes.padding_multiple, has_target ? shapes.padding_multiple : 0};
    }
  }
  return dealt;
}

}  // namespace dynapipe
