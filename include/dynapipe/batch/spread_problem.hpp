#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <dynapipe/batch/constraint.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/units.hpp>

namespace dynapipe {

/// A micro-batch to be given to some replica.
struct spread_item {
  nanoseconds time{0};       ///< on one device
  std::int64_t samples = 1;  ///< that it holds
};

/// What a spread is for, and what it keeps. Every replica has a micro-batch at least.
struct spread_options {
  std::int64_t replicas = 1;
  std::int64_t devices = 1;  ///< pipeline devices of one replica
  std::int64_t stages_per_device = 1;
  bool equal_counts = false;        ///< the same number of micro-batches on every replica
  std::int64_t count_multiple = 1;  ///< each replica's number of micro-batches is a multiple of it
  bool equal_samples = false;       ///< the replicas' numbers of samples differ by one at most
  bool lock_step = false;           ///< the m-th micro-batches of all replicas run at once; implies equal counts
  bool dummies = false;             ///< micro-batches that are missing are filled in, without samples
  nanoseconds dummy_time{0};        ///< of such a one; counts as no more than the shortest micro-batch's
};

/// Micro-batches on replicas.
struct spread_result {
  std::vector<std::vector<std::size_t>> replicas;  ///< positions in the input, longest first or step after step
  std::vector<std::int64_t> dummies;               ///< of each replica, to run after its others
  wide_int scaled_objective = 0;                   ///< `stages_per_device` times the objective, which is an integer
  wide_int scaled_bound = 0;                       ///< no spread has a scaled objective below it

  /// How far the objective may be above the optimum: 0.01 is 1 %.
  [[nodiscard]] double gap() const {
    if (scaled_objective == scaled_bound) return 0.0;
    return static_cast<double>(scaled_objective - scaled_bound) /
           static_cast<double>(std::max<wide_int>(1, scaled_bound));
  }
};

namespace detail {

/// Items in an order that does not depend on that of the input: longest first, then most samples, then by id. Below, an
/// item is its position in this order; dummies come last.
struct spread_problem {
  struct item {
    std::int64_t time = 0;
    std::int64_t samples = 0;
    std::size_t id = 0;
  };
  spread_options options;
  std::vector<item> items;
  std::size_t real = 0;  ///< items that are no dummies
  std::int64_t dummy_time = 0;
  wide_int sum = 0;                ///< of the times
  std::int64_t least_samples = 0;  ///< of a replica
  std::int64_t most_samples = int64_limit;

  [[nodiscard]] std::size_t replicas() const { return static_cast<std::size_t>(options.replicas); }
  /// What a replica takes, times the stages of a device.
  [[nodiscard]] wide_int value(wide_int of_all, std::int64_t longest) const {
    return options.stages_per_device * of_all + static_cast<wide_int>(options.devices - 1) * longest;
  }
  /// By how many samples a replica misses what is asked.
  [[nodiscard]] std::int64_t samples_off(std::int64_t samples) const {
    return std::max({std::int64_t{0}, samples - most_samples, least_samples - samples});
  }
  void add_dummies(std::int64_t count) {
    for (; count > 0; --count) {
      items.push_back({dummy_time, 0, items.size()});
      sum += dummy_time;
    }
  }
};

/// O(n log n). @throws error where a time or a number of samples is out of range.
template <class Lazy = void>
spread_problem sort_spread(std::span<const spread_item> given, const spread_options& options) {
  spread_problem p;
  p.options = options;
  wide_int samples = 0;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const spread_item& item = given[i];
    if (item.time.value() < 0 || item.samples < 0)
      throw error{"micro-batch " + std::to_string(i) + ": time " + std::to_string(item.time.value()) +
                  " ns and samples " + std::to_string(item.samples) + " must not be negative"};
    p.items.push_back({item.time.value(), item.samples, i});
    p.sum += item.time.value();
    samples += item.samples;
  }
  if (p.sum > int64_limit / 4 || samples > int64_limit / 4)
    throw error{"the micro-batches' times or samples add up to more than 2^61"};
  std::sort(p.items.begin(), p.items.end(), [](const spread_problem::item& a, const spread_problem::item& b) {
    if (a.time != b.time) return a.time > b.time;
    return a.samples != b.samples ? a.samples > b.samples : a.id < b.id;
  });
  p.real = p.items.size();
  p.dummy_time = options.dummy_time.value();
  if (!p.items.empty()) p.dummy_time = std::min(p.dummy_time, p.items.back().time);
  if (options.equal_samples) {
    p.least_samples = static_cast<std::int64_t>(samples / options.replicas);
    p.most_samples = static_cast<std::int64_t>((samples + options.replicas - 1) / options.replicas);
  }
  return p;
}

/// The least number of micro-batches that the counts asked for allow, dummies included.
/// @throws unsatisfiable where micro-batches are missing and dummies are not allowed.
template <class Lazy = void>
std::int64_t least_micro_batches(const spread_options& o, std::size_t given) {
  const std::int64_t n = static_cast<std::int64_t>(given);
  const bool equal = o.equal_counts || o.lock_step;
  const std::int64_t step = saturating_mul(equal ? o.replicas : 1, o.count_multiple);
  const std::int64_t count = round_up(std::max(n, saturating_mul(o.replicas, o.count_multiple)), step);
  if (o.dummies || count == n) return count;
  const bool few = n < o.replicas;
  const bool multiple = !few && o.count_multiple > 1 && (!equal || n % o.replicas == 0);
  const batch_constraint relax = few               ? batch_constraint::micro_batches
                                 : multiple        ? batch_constraint::count_multiple
                                 : !o.equal_counts ? batch_constraint::lock_step
                                                   : batch_constraint::equal_counts;
  std::string wanted = equal ? "the same number on each" : "at least one on each";
  if (o.count_multiple > 1) wanted += ", a multiple of " + std::to_string(o.count_multiple);
  throw unsatisfiable{std::to_string(n) + " micro-batches cannot be spread over " + std::to_string(o.replicas) +
                          " replicas with " + wanted + ": " + std::to_string(count - n) +
                          " are missing; allow dummies, make more micro-batches, or give up " +
                          std::string{to_string(relax)},
                      relax};
}

}  // namespace detail

}  // namespace dynapipe
