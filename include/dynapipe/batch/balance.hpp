#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/units.hpp>

namespace dynapipe {

namespace detail {

inline constexpr std::size_t no_weight = static_cast<std::size_t>(-1);

/// Weights of one group, a chain from `first` to `last`.
struct weight_group {
  std::int64_t sum = 0;
  std::size_t first = no_weight;
  std::size_t last = no_weight;
};

/// A partial solution: its groups that hold weights, largest sum first. A weight alone, `age` below the number of
/// weights, has no list: it is the weight at position `age`.
struct partial_spread {
  std::int64_t width;
  std::size_t age;
  std::vector<weight_group> groups;
};

/// The groups of the differencing method, joined as `balance` says.
template <class Lazy = void>
class differencing {
 public:
  differencing(std::span<const nanoseconds> weights, std::size_t replicas)
      : weights_{weights}, replicas_{replicas}, next_(weights.size(), no_weight) {}

  [[nodiscard]] std::vector<weight_group> run() {
    std::vector<partial_spread> heap;
    heap.reserve(weights_.size());
    for (std::size_t i = 0; i < weights_.size(); ++i)
      heap.push_back({replicas_ > 1 ? weights_[i].value() : 0, i, {}});
    if (heap.empty()) return {};
    std::make_heap(heap.begin(), heap.end(), later);
    for (std::size_t age = weights_.size(); heap.size() > 1; ++age) {
      std::pop_heap(heap.begin(), heap.end(), later);
      partial_spread a = std::move(heap.back());
      heap.pop_back();
      std::pop_heap(heap.begin(), heap.end(), later);
      partial_spread& b = heap.back();
      join(a, b);
      a.age = age;
      b = std::move(a);
      std::push_heap(heap.begin(), heap.end(), later);
    }
    fill(heap.front());
    return std::move(heap.front().groups);
  }

  /// The weight after `i` in its group.
  [[nodiscard]] std::size_t next(std::size_t i) const { return next_[i]; }

 private:
  static bool later(const partial_spread& a, const partial_spread& b) {
    return a.width != b.width ? a.width < b.width : a.age > b.age;
  }
  static bool larger(const weight_group& x, const weight_group& y) {
    return x.sum != y.sum ? x.sum > y.sum : x.first < y.first;
  }

  void fill(partial_spread& s) const {
    if (s.groups.empty()) s.groups.push_back({weights_[s.age].value(), s.age, s.age});
  }

  void join(weight_group& mine, const weight_group& other) {
    mine.sum = saturating_add(mine.sum, other.sum);
    next_[mine.last] = other.first;
    mine.last = other.last;
  }

  /// Joins the largest groups of each with the smallest of the other, empty ones being the smallest.
  void join(partial_spread& a, const partial_spread& b) {
    fill(a);
    if (b.groups.empty()) {
      insert(a.groups, {weights_[b.age].value(), b.age, b.age});
    } else {
      const std::size_t filled = a.groups.size();
      for (std::size_t g = 0; g < b.groups.size(); ++g) {
        const std::size_t at = replicas_ - 1 - g;
        if (at < filled) {
          join(a.groups[at], b.groups[g]);
        } else {
          a.groups.push_back(b.groups[g]);
        }
      }
      std::sort(a.groups.begin(), a.groups.end(), larger);
    }
    a.width = a.groups.front().sum - (a.groups.size() == replicas_ ? a.groups.back().sum : 0);
  }

  /// Joins a weight alone: to the smallest group, which then finds its place.
  void insert(std::vector<weight_group>& groups, weight_group weight) {
    if (groups.size() == replicas_) {
      join(groups.back(), weight);
      weight = groups.back();
      groups.pop_back();
    }
    groups.insert(std::lower_bound(groups.begin(), groups.end(), weight, larger), weight);
  }

  std::span<const nanoseconds> weights_;
  std::size_t replicas_;
  std::vector<std::size_t> next_;
};

}  // namespace detail

/// Spreads weights over `replicas` groups of nearly equal sums by the largest differencing method.
///
/// Problem: number partitioning, minimise the spread of the sums. Method (Karmarkar and Karp, 1982): every weight
/// starts as a partial solution with one filled group; the two partial solutions of largest spread are joined, largest
/// groups with smallest, until one is left.
///
/// Returns for each group the positions of its weights, ascending; groups are sorted by their first position, empty
/// ones last. A heuristic without a bound, in practice within 1 % of even for more than a few weights a group.
/// Deterministic: equal spreads join the older partial solution first. Only groups that hold weights are kept: of the
/// joins, all but n / r take in one weight alone. O(n (r + log n)) time, where r counts moved groups, O(n) memory for n
/// weights and r groups; never throws.
template <class Lazy = void>
[[nodiscard]] std::vector<std::vector<std::size_t>> balance(std::span<const nanoseconds> weights,
                                                            std::size_t replicas) {
  DYNAPIPE_ASSERT(replicas > 0);
  detail::differencing<> method{weights, replicas};
  const std::vector<detail::weight_group> groups = method.run();
  std::vector<std::vector<std::size_t>> result(replicas);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = groups[g].first; i != detail::no_weight; i = method.next(i))
      result[g].push_back(i);
    std::sort(result[g].begin(), result[g].end());
  }
  std::sort(result.begin(), result.end(), [](const auto& x, const auto& y) {
    if (x.empty() || y.empty()) return y.empty() && !x.empty();
    return x.front() < y.front();
  });
  return result;
}

}  // namespace dynapipe
