#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <dynapipe/batch/balance.hpp>
#include <dynapipe/batch/spread_problem.hpp>

namespace dynapipe::detail {

/// Which replica each item is on.
using spread_places = std::vector<std::uint32_t>;

/// How many items a replica may have while items are dealt one after another: at least `least` and at most `most`, and
/// a multiple. A place is allowed if the items to come suffice to complete all replicas.
class count_rule {
 public:
  count_rule(std::size_t replicas, std::size_t items, std::int64_t least, std::int64_t most, std::int64_t multiple)
      : least_{least},
        most_{most},
        multiple_{multiple},
        remaining_{static_cast<std::int64_t>(items)},
        needed_{static_cast<std::int64_t>(replicas) * least},
        counts_(replicas, 0) {}

  /// A replica that lacks items, whatever comes.
  [[nodiscard]] bool is_open(std::size_t r) const { return counts_[r] < least_ || counts_[r] % multiple_ != 0; }
  [[nodiscard]] bool may_begin() const { return needed_ + multiple_ <= remaining_; }
  [[nodiscard]] bool allows(std::size_t r) const { return counts_[r] < most_ && (is_open(r) || may_begin()); }
  void place(std::size_t r) {
    needed_ += is_open(r) ? -1 : multiple_ - 1;
    ++counts_[r];
    --remaining_;
  }
  [[nodiscard]] std::int64_t count(std::size_t r) const { return counts_[r]; }
  [[nodiscard]] std::int64_t most() const { return most_; }

 private:
  std::int64_t least_;
  std::int64_t most_;
  std::int64_t multiple_;
  std::int64_t remaining_;
  std::int64_t needed_;
  std::vector<std::int64_t> counts_;
};

/// Longest first, each to the replica that then takes least, ties to the lower number. O(n log R).
template <class Lazy = void>
spread_places deal_longest_first(const spread_problem& p, count_rule rule) {
  struct entry {
    wide_int value;
    std::uint32_t replica;
  };
  const auto later = [](const entry& a, const entry& b) {
    return a.value != b.value ? a.value > b.value : a.replica > b.replica;
  };
  // Replicas that have items, those that lack some and the others, and what they take; replicas from `fresh` on are
  // empty.
  std::vector<entry> heaps[2];
  std::uint32_t fresh = 0;
  spread_places where(p.items.size());
  for (std::size_t i = 0; i < p.items.size(); ++i) {
    const std::int64_t time = p.items[i].time;
    int best = -1;
    for (int h = 0; h < 2; ++h)
      if (!heaps[h].empty() && rule.allows(heaps[h].front().replica) &&
          (best < 0 || later(heaps[best].front(), heaps[h].front())))
        best = h;
    const bool can_open = fresh < p.replicas() && rule.allows(fresh);
    entry to{p.value(time, time), fresh};
    if (best >= 0 && (!can_open || heaps[best].front().value + p.value(time, 0) < to.value)) {
      std::pop_heap(heaps[best].begin(), heaps[best].end(), later);
      to = heaps[best].back();
      heaps[best].pop_back();
      to.value += p.value(time, 0);
    } else {
      ++fresh;
    }
    rule.place(to.replica);
    where[i] = to.replica;
    if (rule.count(to.replica) == rule.most()) continue;
    std::vector<entry>& heap = heaps[rule.is_open(to.replica) ? 0 : 1];
    heap.push_back(to);
    std::push_heap(heap.begin(), heap.end(), later);
  }
  return where;
}

/// Longest first, each to the first replica that then takes `limit` at most: long items come together, so that few
/// pipelines fill slowly. None where an item finds no place. O(n R).
template <class Lazy = void>
std::optional<spread_places> fill_to(const spread_problem& p, count_rule rule, wide_int limit) {
  spread_places where(p.items.size());
  std::vector<wide_int> value(p.replicas(), 0);
  const wide_int shortest = p.value(p.items.back().time, 0);
  std::size_t first = 0;
  for (std::size_t i = 0; i < p.items.size(); ++i) {
    const std::int64_t time = p.items[i].time;
    std::size_t r = first;
    for (; r < value.size(); ++r)
      if (value[r] + p.value(time, rule.count(r) == 0 ? time : 0) <= limit && rule.allows(r)) break;
    if (r == value.size()) return std::nullopt;
    value[r] += p.value(time, rule.count(r) == 0 ? time : 0);
    rule.place(r);
    where[i] = static_cast<std::uint32_t>(r);
    while (first < value.size() && (rule.count(first) == rule.most() || value[first] + shortest > limit))
      ++first;
  }
  return where;
}

/// `fill_to` for the least limit that bisection finds between a bound and what is known to do. O(n R) a step.
template <class Lazy = void>
std::optional<spread_places> fill_least(const spread_problem& p, const count_rule& rule, wide_int bound,
                                        wide_int known) {
  std::optional<spread_places> best;
  for (int step = 0; step < 12 && bound < known; ++step) {
    const wide_int limit = bound + (known - bound) / 2;
    if (std::optional<spread_places> found = fill_to(p, rule, limit)) {
      best = std::move(found);
      known = limit;
    } else {
      bound = limit + 1;
    }
  }
  return best;
}

/// For equal counts: longest first, each to the replica with the most work left for each of its free places, of those
/// whose longest item, `longest` of the bound, is no shorter. A replica's work is what `limit` leaves beside the time
/// to fill its pipeline. O(n R).
template <class Lazy = void>
spread_places deal_to_targets(const spread_problem& p, count_rule rule, wide_int limit,
                              const std::vector<std::size_t>& longest) {
  spread_places where(p.items.size());
  std::vector<std::int64_t> left;
  for (std::size_t r = 0; r < p.replicas(); ++r) {
    const std::int64_t first = p.items[longest[std::min(r, longest.size() - 1)]].time;
    left.push_back(static_cast<std::int64_t>((limit - p.value(0, first)) / p.options.stages_per_device));
  }
  std::size_t open = 1;
  for (std::size_t i = 0; i < p.items.size(); ++i) {
    while (open < left.size() && longest[std::min(open, longest.size() - 1)] <= i)
      ++open;
    const auto best = [&] {
      std::size_t found = open;
      for (std::size_t r = 0; r < open; ++r) {
        if (!rule.allows(r)) continue;
        if (found == open || static_cast<wide_int>(left[r]) * (rule.most() - rule.count(found)) >
                                 static_cast<wide_int>(left[found]) * (rule.most() - rule.count(r)))
          found = r;
      }
      return found;
    };
    std::size_t to = best();
    while (to == open) {
      ++open;
      to = best();
    }
    left[to] -= p.items[i].time;
    rule.place(to);
    where[i] = static_cast<std::uint32_t>(to);
  }
  return where;
}

/// The differencing method; with `equal` counts for a number of items that is a multiple of the replicas'. A weight
/// added to all items makes it join whole rounds of them first, so that all groups stay equally many.
template <class Lazy = void>
spread_places deal_by_differences(const spread_problem& p, bool equal) {
  std::vector<nanoseconds> weights;
  weights.reserve(p.items.size());
  const std::int64_t offset = equal && !p.items.empty() ? p.items.front().time + 1 : 0;
  for (const spread_problem::item& item : p.items)
    weights.emplace_back(item.time + offset);
  const std::vector<std::vector<std::size_t>> groups = balance(weights, p.replicas());
  spread_places where(p.items.size());
  for (std::size_t r = 0; r < groups.size(); ++r)
    for (const std::size_t i : groups[r])
      where[i] = static_cast<std::uint32_t>(r);
  return where;
}

}  // namespace dynapipe::detail
