#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <dynapipe/batch/spread_problem.hpp>
#include <dynapipe/batch/spread_start.hpp>

namespace dynapipe::detail {

/// Tries all spreads of a few micro-batches, within a number of steps, depth first and longest first. Of replicas that
/// are equal so far one is tried. A branch ends where its replicas, or the mean of all, take as long as the best found.
///
/// Dummies are no items here: a replica short of micro-batches takes the time of so many dummies more. In lock-step a
/// replica's items, which come longest first, stand at its steps in that order, the best there is; a step's longest is
/// then the first item that reaches it.
class exact_spread {
 public:
  /// At most so many micro-batches are worth the search.
  static constexpr std::size_t most_items = 12;

  explicit exact_spread(const spread_problem& p)
      : p_{p},
        equal_{p.options.equal_counts || p.options.lock_step},
        replicas_(p.replicas()),
        where_(p.real),
        best_places_(p.real) {
    for (std::size_t i = 0; i < p.real; ++i)
      real_sum_ += p.items[i].time;
  }

  /// Searches for less than `known`, if something is known.
  void run(std::optional<wide_int> known) {
    best_ = known;
    steps_ = known ? 1 << 15 : 1 << 20;
    descend(0, 0);
  }
  /// Whether every spread was tried or ruled out.
  [[nodiscard]] bool complete() const { return steps_ > 0; }
  /// Of the real items, where something better than known was found.
  [[nodiscard]] bool improved() const { return improved_; }
  [[nodiscard]] const spread_places& places() const { return best_places_; }
  [[nodiscard]] wide_int objective() const { return *best_; }

 private:
  struct replica {
    std::int64_t sum = 0;
    std::int64_t longest = 0;
    std::int64_t count = 0;
    std::int64_t samples = 0;

    friend bool operator==(const replica&, const replica&) = default;
  };

  [[nodiscard]] wide_int value(const replica& r) const { return p_.value(r.sum, r.longest); }

  /// `steps` is the number of steps that have begun, in lock-step; their longest are `in_steps_`.
  void descend(std::size_t i, std::int64_t steps) {
    if (steps_ == 0) return;
    --steps_;
    if (best_ && p_.options.lock_step && p_.value(in_steps_, p_.items[0].time) >= *best_) return;
    wide_int all = p_.options.stages_per_device * real_sum_;
    for (const replica& r : replicas_) {
      if (best_ && value(r) >= *best_) return;
      all += p_.value(0, r.longest);
    }
    if (best_ && all > (*best_ - 1) * p_.options.replicas) return;
    if (i == p_.real) return judge();
    const spread_problem::item& item = p_.items[i];
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      if (std::find(replicas_.begin(), replicas_.begin() + static_cast<std::ptrdiff_t>(r), replicas_[r]) !=
          replicas_.begin() + static_cast<std::ptrdiff_t>(r))
        continue;
      if (replicas_[r].samples + item.samples > p_.most_samples) continue;
      const replica kept = replicas_[r];
      replicas_[r] = {kept.sum + item.time, std::max(kept.longest, item.time), kept.count + 1,
                      kept.samples + item.samples};
      where_[i] = static_cast<std::uint32_t>(r);
      const bool begins = kept.count == steps;
      in_steps_ += begins ? item.time : 0;
      descend(i + 1, begins ? steps + 1 : steps);
      in_steps_ -= begins ? item.time : 0;
      replicas_[r] = kept;
    }
  }

  void judge() {
    const spread_options& o = p_.options;
    std::int64_t largest = 0;
    for (const replica& r : replicas_)
      largest = std::max(largest, r.count);
    const std::int64_t count = round_up(std::max<std::int64_t>(1, largest), o.count_multiple);
    wide_int most = 0;
    if (o.lock_step)
      most = p_.value(in_steps_ + static_cast<wide_int>(p_.dummy_time) * (count - largest), p_.items[0].time);
    for (const replica& r : replicas_) {
      const std::int64_t wanted = equal_ ? count : round_up(std::max<std::int64_t>(1, r.count), o.count_multiple);
      if (p_.samples_off(r.samples) > 0 || (!o.dummies && wanted != r.count)) return;
      if (o.lock_step) continue;
      most = std::max(most, p_.value(r.sum + static_cast<wide_int>(p_.dummy_time) * (wanted - r.count),
                                     std::max(r.longest, wanted > r.count ? p_.dummy_time : 0)));
    }
    if (best_ && most >= *best_) return;
    best_ = most;
    best_places_ = where_;
    improved_ = true;
  }

  const spread_problem& p_;
  bool equal_;
  wide_int real_sum_ = 0;
  std::int64_t in_steps_ = 0;
  std::vector<replica> replicas_;
  spread_places where_;
  spread_places best_places_;
  std::optional<wide_int> best_;
  std::int64_t steps_ = 0;
  bool improved_ = false;
};

}  // namespace dynapipe::detail
