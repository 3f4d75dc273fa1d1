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
#include <dynapipe/batch/spread_bound.hpp>
#include <dynapipe/batch/spread_exact.hpp>
#include <dynapipe/batch/spread_problem.hpp>
#include <dynapipe/batch/spread_refine.hpp>
#include <dynapipe/batch/spread_start.hpp>
#include <dynapipe/batch/spread_steps.hpp>
#include <dynapipe/core/error.hpp>

namespace dynapipe {

namespace detail {

[[noreturn]] inline void refuse_samples(const spread_problem& p, bool proven) {
  const std::string range = std::to_string(p.least_samples) +
                            (p.least_samples == p.most_samples ? "" : " or " + std::to_string(p.most_samples)) +
                            " samples";
  throw unsatisfiable{std::string{proven ? "there is no spread" : "no spread was found"} + " with " + range +
                          " on each of " + std::to_string(p.options.replicas) +
                          " replicas and the counts asked for; cut micro-batches of other sizes, or give up "
                          "equal_samples",
                      batch_constraint::equal_samples};
}

/// Real items on replicas, dummies, and what they take.
struct spread_draft {
  std::vector<std::vector<std::uint32_t>> items;
  std::vector<std::int64_t> dummies;
  wide_int objective = 0;

  spread_draft(const spread_problem& p, const spread_places& where) : items(p.replicas()), dummies(p.replicas(), 0) {
    for (std::size_t i = 0; i < where.size(); ++i) {
      if (i < p.real) {
        items[where[i]].push_back(static_cast<std::uint32_t>(i));
      } else {
        ++dummies[where[i]];
      }
    }
    measure(p);
  }

  /// Fills up with dummies to the counts asked for.
  void fill(const spread_problem& p) {
    std::size_t largest = 0;
    for (const std::vector<std::uint32_t>& list : items)
      largest = std::max(largest, list.size());
    for (std::size_t r = 0; r < items.size(); ++r) {
      const std::int64_t count = static_cast<std::int64_t>(p.options.equal_counts ? largest : items[r].size());
      dummies[r] = round_up(std::max<std::int64_t>(1, count), p.options.count_multiple) -
                   static_cast<std::int64_t>(items[r].size());
    }
    measure(p);
  }

  [[nodiscard]] spread_result result(const spread_problem& p, wide_int bound) const {
    std::vector<std::size_t> order(items.size());
    for (std::size_t r = 0; r < order.size(); ++r)
      order[r] = r;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      if (items[a].empty() || items[b].empty()) return items[a].empty() != items[b].empty() ? items[b].empty() : a < b;
      return items[a].front() < items[b].front();
    });
    spread_result made;
    made.scaled_objective = objective;
    made.scaled_bound = std::min(bound, objective);
    for (const std::size_t r : order) {
      std::vector<std::size_t>& list = made.replicas.emplace_back();
      for (const std::uint32_t i : items[r])
        list.push_back(p.items[i].id);
      made.dummies.push_back(dummies[r]);
    }
    return made;
  }

 private:
  void measure(const spread_problem& p) {
    objective = 0;
    for (std::size_t r = 0; r < items.size(); ++r) {
      wide_int sum = static_cast<wide_int>(dummies[r]) * p.dummy_time;
      for (const std::uint32_t i : items[r])
        sum += p.items[i].time;
      objective = std::max(objective, p.value(sum, !items[r].empty() ? p.items[items[r].front()].time
                                                   : dummies[r] > 0  ? p.dummy_time
                                                                     : 0));
    }
  }
};

/// The best refined start. None where the samples were not evened out.
template <class Lazy = void>
std::optional<spread_draft> best_start(const spread_problem& p, const count_rule& rule, bool equal, bool moves,
                                       std::int64_t least, wide_int bound) {
  std::optional<spread_draft> best;
  const auto offer = [&](const spread_places& where) {
    spread_refiner refiner{p, where, moves, least};
    if (p.options.equal_samples && !refiner.even_samples()) return;
    refiner.even_times(bound);
    spread_draft found{p, refiner.places()};
    if (!best || found.objective < best->objective) best = std::move(found);
  };
  const spread_places longest_first = deal_longest_first(p, rule);
  offer(longest_first);
  if (best && best->objective <= bound) return best;
  if (equal || moves) offer(deal_by_differences(p, equal));
  if (equal && p.options.devices > 1) {
    std::vector<std::size_t> longest;
    const wide_int limit = spread_bound(p, least, rule.most(), &longest);
    offer(deal_to_targets(p, rule, limit, longest));
  }
  if (p.options.devices > 1 && !equal) {
    const wide_int known = best ? best->objective : spread_draft{p, longest_first}.objective;
    if (const std::optional<spread_places> filled = fill_least(p, rule, bound, known)) offer(*filled);
  }
  return best;
}

/// The result of a spread in lock-step, from each replica's items, step after step.
template <class Lazy = void>
spread_result steps_result(const spread_problem& p, const std::vector<std::vector<std::uint32_t>>& items,
                           std::size_t steps) {
  spread_result made;
  std::vector<std::int64_t> longest(steps, p.dummy_time);
  for (const std::vector<std::uint32_t>& list : items) {
    std::vector<std::size_t>& ids = made.replicas.emplace_back();
    for (std::size_t m = 0; m < list.size(); ++m) {
      longest[m] = std::max(longest[m], p.items[list[m]].time);
      ids.push_back(p.items[list[m]].id);
    }
    made.dummies.push_back(static_cast<std::int64_t>(steps - list.size()));
  }
  wide_int sum = 0;
  for (const std::int64_t time : longest)
    sum += time;
  made.scaled_objective = p.value(sum, p.items[0].time);
  return made;
}

template <class Lazy = void>
spread_result spread_in_steps(const spread_problem& p) {
  spread_steps dealt = deal_in_runs(p);
  const wide_int bound = p.value(dealt.sum(p), p.items[0].time);
  std::optional<spread_result> best;
  if (!p.options.equal_samples || even_step_samples(p, dealt)) {
    std::sort(dealt.steps.begin(), dealt.steps.end(), [](const auto& a, const auto& b) {
      return *std::min_element(a.begin(), a.end()) < *std::min_element(b.begin(), b.end());
    });
    // A replica's dummies come last: without them it is ahead, among steps that are no shorter.
    std::vector<std::vector<std::uint32_t>> items(p.replicas());
    for (const std::vector<std::uint32_t>& step : dealt.steps)
      for (std::size_t r = 0; r < step.size(); ++r)
        if (step[r] < p.real) items[r].push_back(step[r]);
    best = steps_result(p, items, dealt.steps.size());
    best->scaled_bound = bound;
  }
  if (best && best->scaled_objective == bound) return *best;
  if (p.real > exact_spread::most_items) {
    if (!best) refuse_samples(p, false);
    return *best;
  }
  exact_spread all{p};
  all.run(best ? std::optional{best->scaled_objective} : std::nullopt);
  if (!best && !all.improved()) refuse_samples(p, all.complete());
  if (all.improved()) {
    std::vector<std::vector<std::uint32_t>> items(p.replicas());
    std::size_t steps = 1;
    for (std::size_t i = 0; i < p.real; ++i) {
      std::vector<std::uint32_t>& list = items[all.places()[i]];
      list.push_back(static_cast<std::uint32_t>(i));
      steps = std::max(steps, list.size());
    }
    best = steps_result(p, items,
                        static_cast<std::size_t>(round_up(static_cast<std::int64_t>(steps), p.options.count_multiple)));
  }
  best->scaled_bound = all.complete() ? best->scaled_objective : bound;
  return *best;
}

}  // namespace detail

/// Spreads micro-batches over data-parallel replicas so that the slowest pipeline is as fast as can be.
///
/// Problem: minimise, over all ways to give micro-batches to replicas, the largest over the replicas of
/// sum + (devices - 1) * longest / stages_per_device, of its micro-batches' times. In lock-step the m-th of all
/// replicas run at once: the sum is then that over m of the slowest m-th, and the longest that of all. Strongly NP-hard
/// but for lock-step, which is solved exactly by dealing in runs.
///
/// Method: up to three starts: longest first to the replica that then takes least (Graham, 1969); the differencing
/// method (`balance`); and, with more than one device, one that brings long micro-batches together. That is first-fit
/// to a limit found by bisection (MULTIFIT; Coffman, Garey and Johnson, 1978), the pipeline's fill counted; for equal
/// counts `detail::deal_to_targets`, the longest micro-batch and the work of each replica being those of the bound.
/// Each start is refined (`detail::spread_refiner`), the best is kept. Up to 12 micro-batches, all ways are tried as
/// far as a number of steps allows (`detail::exact_spread`). Dummies fill the least number of missing micro-batches, or
/// as many as the spread without regard to counts would need, whichever is faster.
///
/// Guarantee: all that is asked for is kept; no spread is below `scaled_bound` (`detail::spread_bound`). The objective
/// depends on the micro-batches alone, not on their order, which breaks ties between equal ones. The result lists
/// replicas by their longest micro-batch. Complexity: O(n log n + n R) for n micro-batches on R replicas, in practice.
///
/// @throws error where a time or a number of samples is out of range. @throws unsatisfiable where counts do not allow a
/// spread, saying how many micro-batches are missing; or where no spread with equal samples exists, or, above 12
/// micro-batches, where none was found.
template <class Lazy = void>
[[nodiscard]] spread_result spread(std::span<const spread_item> given, const spread_options& options) {
  const spread_options& o = options;
  DYNAPIPE_ASSERT(o.replicas > 0 && o.devices > 0 && o.stages_per_device > 0 && o.count_multiple > 0);
  DYNAPIPE_ASSERT(o.dummy_time >= nanoseconds{0});
  const detail::spread_problem real = detail::sort_spread(given, o);
  detail::spread_problem p = real;
  const std::int64_t count = detail::least_micro_batches(o, given.size());
  p.add_dummies(count - static_cast<std::int64_t>(given.size()));
  if (o.lock_step) return detail::spread_in_steps(p);

  const std::int64_t most = o.equal_counts ? count / o.replicas : count;
  const std::int64_t least = o.equal_counts ? most : o.count_multiple;
  // With more dummies than the least number any counts are possible.
  wide_int bound = detail::spread_bound(p, o.dummies ? 0 : least, o.dummies ? count : most);
  const bool moves = !o.equal_counts && o.count_multiple == 1;
  const detail::count_rule rule{p.replicas(), p.items.size(), least, most, o.count_multiple};
  std::optional<detail::spread_draft> best = detail::best_start(p, rule, o.equal_counts, moves, least, bound);

  if (o.dummies && p.real > 0 && (!best || best->objective > bound)) {
    const detail::count_rule any{p.replicas(), real.items.size(), 0, int64_limit, 1};
    std::optional<detail::spread_draft> free = detail::best_start(real, any, false, true, 0, bound);
    if (free) {
      free->fill(p);
      if (!best || free->objective < best->objective) best = std::move(free);
    }
  }

  bool proven = false;
  if (p.real <= detail::exact_spread::most_items && (!best || best->objective > bound)) {
    detail::exact_spread all{p};
    all.run(best ? std::optional{best->objective} : std::nullopt);
    proven = all.complete();
    if (all.improved()) {
      best = detail::spread_draft{p, all.places()};
      if (o.dummies) best->fill(p);
    }
    if (proven && best) bound = best->objective;
  }
  if (!best) detail::refuse_samples(p, proven);
  return best->result(p, bound);
}

}  // namespace dynapipe
