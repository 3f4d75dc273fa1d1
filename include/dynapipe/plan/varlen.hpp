#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/batch/arrange.hpp>
#include <dynapipe/batch/pack.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/counts.hpp>
#include <dynapipe/cost/shape.hpp>
#include <dynapipe/plan/plan.hpp>
#include <dynapipe/plan/planner.hpp>

namespace dynapipe {

namespace detail {

/// Samples of one batch as items of `pack`.
template <class Planner>
class varlen_batch {
 public:
  varlen_batch(const Planner& planner, const batch_samples& samples)
      : planner_{planner}, samples_{samples}, room_{planner.costs().make_workspace()} {
    std::vector<bool> dropped(samples.lengths.size(), false);
    for (const sample_id id : samples.dropped)
      dropped[index(id)] = true;
    const std::int64_t window = skipped_window(planner.costs().model());
    const shape_options& shapes = planner.costs().options().shapes;
    for (std::size_t i = 0; i < samples.lengths.size(); ++i) {
      if (dropped[i]) continue;
      const sample_lengths& s = samples.lengths[i];
      const std::int64_t input = padded_length(s.input, shapes);
      const std::int64_t target = s.target > 0 ? padded_length(s.target, shapes) : 0;
      ids_.push_back(to_id<sample_id>(i));
      alone_.push_back(with_sample({}, input, target, window));
      longest_ = {1, std::max(longest_.input, input), std::max(longest_.target, target)};
      total_ = saturating_add(total_, input + target);
    }
  }

  [[nodiscard]] bool empty() const { return ids_.empty(); }

  /// @throws infeasible or error, naming the sample, where one alone cannot be run.
  void require_fits() const {
    for (std::size_t k = 0; k < ids_.size(); ++k) {
      const sample_lengths& s = samples_.lengths[index(ids_[k])];
      planner_.costs().require_run(alone_[k], "sample " + std::to_string(index(ids_[k])) + " (data row " +
                                                  std::to_string(samples_.source_rows[index(ids_[k])]) + ", " +
                                                  std::to_string(s.input + s.target) + " tokens, concatenated)");
    }
  }

  /// The most tokens, input and target together, of which any micro-batch leaves `in_flight` of them room; none where
  /// that is fewer than the longest sample has.
  [[nodiscard]] std::optional<std::int64_t> cap(std::int64_t in_flight) {
    const auto fits = [&](std::int64_t tokens) {
      return planner_.costs().price(dearest(tokens), room_).in_flight >= in_flight;
    };
    std::int64_t below = longest_.input + longest_.target;
    if (!fits(below)) return std::nullopt;
    std::int64_t above = std::max(below, total_);
    while (below < above) {
      const std::int64_t middle = below + (above - below + 1) / 2;
      if (fits(middle)) {
        below = middle;
      } else {
        above = middle - 1;
      }
    }
    return below;
  }

  /// Packs micro-batches of at most `cap` tokens for the replicas. What a sample adds is its time beside a full
  /// micro-batch of the batch's mix: times are not quite additive, where floors and roofs meet.
  [[nodiscard]] std::vector<std::vector<micro_batch>> micro_batches(std::int64_t cap) {
    const varlen_shape full = mix(cap);
    const std::int64_t once = time_of(full);
    std::vector<pack_item> items;
    for (const varlen_shape& one : alone_)
      items.push_back(
          {.size = one.tokens + one.target_tokens, .work = std::max<std::int64_t>(0, time_of(sum(full, one)) - once)});
    const std::int64_t fixed = std::max<std::int64_t>(0, saturating_add(once, once) - time_of(sum(full, full)));
    const auto& options = planner_.costs().options();
    const pack_result packed = pack(items, {.ranks = options.data,
                                            .cap = cap,
                                            .fixed = fixed,
                                            .devices = options.pipeline,
                                            .stages_per_device = options.stages_per_device,
                                            .equal_counts = false,
                                            .dummies = true});
    std::vector<std::vector<micro_batch>> replicas(packed.ranks());
    for (std::size_t r = 0; r < packed.ranks(); ++r) {
      for (std::size_t m = 0; m < packed.micro_batches(r); ++m)
        if (!packed.of(r, m).empty()) replicas[r].push_back(joined(packed.of(r, m)));
      if (replicas[r].empty()) replicas[r].push_back(dummy());
    }
    return replicas;
  }

  /// Each replica's micro-batches in one of the library's orders, by their time on the slowest device.
  [[nodiscard]] std::vector<std::vector<micro_batch>> in_order(std::vector<std::vector<micro_batch>> replicas,
                                                               micro_batch_order order) {
    for (std::vector<micro_batch>& replica : replicas) {
      std::vector<arrange_key> keys;
      for (const micro_batch& mb : replica)
        keys.push_back({planner_.costs().price(mb.work(), room_).time,
                        mb.samples.empty() ? sample_id{} : *std::min_element(mb.samples.begin(), mb.samples.end())});
      replica = arranged(std::move(replica), arrange(keys, order));
    }
    return replicas;
  }

 private:
  [[nodiscard]] std::int64_t time_of(const varlen_shape& v) { return planner_.costs().price(v, room_).time.value(); }

  [[nodiscard]] static varlen_shape sum(const varlen_shape& a, const varlen_shape& b) {
    return {saturating_add(a.tokens, b.tokens),
            saturating_add(a.squares, b.squares),
            saturating_add(a.samples, b.samples),
            saturating_add(a.target_tokens, b.target_tokens),
            saturating_add(a.target_squares, b.target_squares),
            saturating_add(a.cross_pairs, b.cross_pairs)};
  }

  /// A micro-batch of so many tokens, with samples as the batch has them.
  [[nodiscard]] varlen_shape mix(std::int64_t tokens) const {
    varlen_shape all;
    for (const varlen_shape& one : alone_)
      all = sum(all, one);
    const auto part = [&](std::int64_t of_all) {
      return saturate(static_cast<wide_int>(of_all) * std::min(tokens, total_) / std::max<std::int64_t>(1, total_));
    };
    return {part(all.tokens),        part(all.squares),        std::max<std::int64_t>(1, part(all.samples)),
            part(all.target_tokens), part(all.target_squares), part(all.cross_pairs)};
  }

  /// No micro-batch of so many tokens, input and target together, of this batch's samples costs more.
  [[nodiscard]] varlen_shape dearest(std::int64_t tokens) const {
    const bool targets = longest_.target > 0;
    return {.tokens = tokens,
            .squares = saturating_mul(tokens, longest_.input),
            .samples = tokens,
            .target_tokens = targets ? tokens : 0,
            .target_squares = targets ? saturating_mul(tokens, longest_.target) : 0,
            .cross_pairs = targets ? saturating_mul(tokens, longest_.input) : 0};
  }

  [[nodiscard]] micro_batch joined(std::span<const std::size_t> items) const {
    micro_batch mb;
    varlen_shape all;
    for (const std::size_t k : items) {
      mb.samples.push_back(ids_[k]);
      mb.loss_tokens += samples_.lengths[index(ids_[k])].loss;
      all = sum(all, alone_[k]);
    }
    mb.row_ends = {items.size()};
    const work_shape work{all};
    mb.padded = work.padded;
    mb.packed = work.packed;
    return mb;
  }

  [[nodiscard]] micro_batch dummy() const {
    const auto& costs = planner_.costs();
    const shape smallest = smallest_shape(costs.model(), costs.options().shapes);
    costs.require_run(smallest, "a micro-batch of the smallest shape, for a replica without samples,");
    return {.samples = {}, .row_ends = {}, .padded = smallest, .packed = {}, .loss_tokens = 0, .dummy = true};
  }

  const Planner& planner_;
  const batch_samples& samples_;
  typename std::remove_cvref_t<decltype(std::declval<Planner>().costs())>::workspace room_;
  std::vector<sample_id> ids_;
  std::vector<varlen_shape> alone_;
  shape longest_;
  std::int64_t total_ = 0;
};

}  // namespace detail

/// Plans samples without padding: micro-batches are concatenated samples, each attending to itself alone.
///
/// Where costs are nearly additive the best micro-batches are not contiguous: `pack` puts samples into micro-batches
/// and micro-batches on replicas at once, under a hard cap of tokens. The cap is the most tokens that leave room for
/// all stages' micro-batches in flight whatever samples they are of, then for half as many, and so on; each is
/// scheduled in several orders, and the shortest simulated iteration wins. Samples marked `alone` need no micro-batch
/// of their own here. For two lengths the cap counts input and target as if each were all of it, which is on the safe
/// side.
///
/// @throws as `planner` does; error where the cost model prices padded rows only.
template <cost_model CostModel>
[[nodiscard]] plan plan_varlen(const planner<CostModel>& planner, const batch_samples& samples) {
  detail::varlen_batch batch{planner, samples};
  if (batch.empty()) return planner(samples);  // refused there
  batch.require_fits();
  std::optional<plan> best;
  std::optional<std::int64_t> before;
  for (auto in_flight = static_cast<std::int64_t>(planner.costs().stages().size()); in_flight > 0; in_flight /= 2) {
    const std::optional<std::int64_t> cap = batch.cap(in_flight);
    if (!cap || cap == before) continue;
    before = cap;
    const std::vector<std::vector<micro_batch>> packed = batch.micro_batches(*cap);
    for (const micro_batch_order order :
         {micro_batch_order::largest_first, micro_batch_order::smallest_first, micro_batch_order::ramp}) {
      plan next = planner(samples, batch.in_order(packed, order), batch_layout::varlen);
      if (!best || next.predicted < best->predicted) best = std::move(next);
    }
  }
  if (!best)
    throw infeasible{
        "no number of tokens is safe for every choice of this batch's samples, though each fits alone "
        "(raise --memory-limit, --pp or --tp, or try --recompute full)",
        {},
        {}};
  return std::move(*best);
}

}  // namespace dynapipe
