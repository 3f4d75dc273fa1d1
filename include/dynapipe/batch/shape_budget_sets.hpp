#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include <dynapipe/batch/limit_search.hpp>
#include <dynapipe/batch/shape_budget_times.hpp>
#include <dynapipe/batch/suffix_sums.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe::detail {

/// Micro-batches that run as shapes of a set.
struct set_cut {
  std::vector<std::size_t> cuts;
  std::vector<std::uint32_t> shape_of;  ///< index into the set
  std::vector<shape> held;              ///< for each shape of the set, what its micro-batches hold; 0 rows: not used
};

/// Fills shapes of a given set with samples in any order.
///
/// With fewer samples left there is never more to pay, so a micro-batch takes all that fit: a dynamic program with one
/// choice for each shape, exact for the sum. O(samples x shapes), 12 bytes a sample.
template <class ShapeTime>
class set_filler {
 public:
  set_filler(std::span<const shape> alone, ShapeTime& time) : alone_{alone}, time_{time} {}

  /// None where a sample has no shape that holds it. Of equal sums, the shape named first.
  [[nodiscard]] std::optional<set_cut> fill(const std::vector<shape>& set) {
    const std::size_t n = alone_.size();
    sides_.clear();
    for (const shape& s : set) {
      const std::optional<nanoseconds> t = time_(s);
      sides_.push_back({t ? t->value() : int64_limit, n});
    }
    least_.assign(n + 1, 0);
    taken_.resize(n);
    for (std::size_t i = n; i-- > 0;) {
      least_[i] = int64_limit;
      for (std::size_t s = 0; s < set.size(); ++s) {
        side& now = sides_[s];
        if (alone_[i].input > set[s].input || alone_[i].target > set[s].target) now.blocked = i;
        if (now.blocked == i) continue;
        const std::size_t end = std::min(now.blocked, i + static_cast<std::size_t>(set[s].rows));
        const std::int64_t sum = saturating_add(now.time, least_[end]);
        if (sum >= least_[i]) continue;
        least_[i] = sum;
        taken_[i] = {static_cast<std::uint32_t>(end - i), static_cast<std::uint32_t>(s)};
      }
    }
    if (least_[0] == int64_limit) return std::nullopt;
    return walk(set.size());
  }

 private:
  struct side {
    std::int64_t time;
    std::size_t blocked;  ///< the next sample that the shape does not hold
  };
  struct choice {
    std::uint32_t samples;
    std::uint32_t shape;
  };

  [[nodiscard]] set_cut walk(std::size_t shapes) const {
    set_cut result;
    result.held.resize(shapes);
    for (std::size_t i = 0; i < alone_.size();) {
      const choice now = taken_[i];
      result.cuts.push_back(i);
      result.shape_of.push_back(now.shape);
      shape& held = result.held[now.shape];
      held.rows = std::max<std::int64_t>(held.rows, now.samples);
      for (const std::size_t end = i + now.samples; i < end; ++i) {
        held.input = std::max(held.input, alone_[i].input);
        held.target = std::max(held.target, alone_[i].target);
      }
    }
    return result;
  }

  std::span<const shape> alone_;
  ShapeTime& time_;
  std::vector<side> sides_;
  std::vector<std::int64_t> least_;
  std::vector<choice> taken_;
};

/// Searches sets of shapes, for samples in any order.
///
/// Starts from micro-batches chosen without a budget. Neighbours are merged until few groups are left, then any two
/// groups, the cheapest merge first; that gives a set for every size. Another start for each size is the set of one
/// shape less and the group that helps it most. Sets are improved by changing one shape at a time: rows one more or
/// less, twice or half, a length to the next that occurs, or the shape away; after each fill every shape shrinks to
/// what it holds. No set for a budget depends on a larger budget.
template <class ShapeTime>
class set_search {
 public:
  struct filled {
    std::vector<shape> set;
    chain_value value;
  };

  set_search(std::span<const shape> alone, ShapeTime& time, const objective_weights& weights)
      : alone_{alone}, time_{time}, weights_{weights}, filler_{alone, time} {
    for (const shape& s : alone) {
      inputs_.push_back(s.input);
      targets_.push_back(s.target);
    }
    for (std::vector<std::int64_t>* values : {&inputs_, &targets_}) {
      std::sort(values->begin(), values->end());
      values->erase(std::unique(values->begin(), values->end()), values->end());
    }
  }

  /// The best set of `shapes` at most that was found from the micro-batches that begin at `cuts`.
  [[nodiscard]] filled run(const std::vector<std::size_t>& cuts, std::size_t shapes) {
    std::vector<group> groups = groups_of(cuts);
    merge_neighbours(groups);
    std::vector<std::vector<shape>> merged(shapes);
    const std::vector<group> pool = groups;
    while (true) {
      if (groups.size() <= shapes) merged[groups.size() - 1] = set_of(groups);
      if (groups.size() == 1) break;
      merge_cheapest(groups);
    }
    filled best;
    for (std::size_t k = 0; k < shapes; ++k) {
      left_ = std::clamp<std::size_t>(most_steps / (alone_.size() * (k + 1)), 8, 4'000);
      const filled before = best;
      filled grown = before;
      for (std::size_t g = 0; k > 0 && g < pool.size() && left_ > 4; ++g) {
        std::vector<shape> set = before.set;
        set.push_back(pool[g].padded);
        keep_better(grown, value_of(set));
      }
      improve(grown);
      keep_better(best, grown);
      if (merged[k].empty()) continue;
      left_ = std::max<std::size_t>(left_, 4);
      filled from_merge = value_of(merged[k]);
      improve(from_merge);
      keep_better(best, from_merge);
    }
    return best;
  }

 private:
  static constexpr std::size_t most_groups = 32;
  static constexpr std::size_t most_steps = std::size_t{1} << 22;

  struct group {
    shape padded;
    std::int64_t samples = 0;
    std::int64_t cost = 0;
  };

  [[nodiscard]] std::int64_t cost_of(const shape& s, std::int64_t samples) {
    const std::optional<nanoseconds> t = time_(s);
    return t ? saturating_mul(t->value(), ceil_div(samples, s.rows)) : int64_limit;
  }

  [[nodiscard]] std::vector<group> groups_of(const std::vector<std::size_t>& cuts) {
    std::vector<group> groups;
    for (std::size_t m = 0; m < cuts.size(); ++m) {
      const std::size_t end = m + 1 < cuts.size() ? cuts[m + 1] : alone_.size();
      group one{{static_cast<std::int64_t>(end - cuts[m]), 0, 0}, static_cast<std::int64_t>(end - cuts[m]), 0};
      for (std::size_t i = cuts[m]; i < end; ++i) {
        one.padded.input = std::max(one.padded.input, alone_[i].input);
        one.padded.target = std::max(one.padded.target, alone_[i].target);
      }
      one.cost = cost_of(one.padded, one.samples);
      groups.push_back(one);
    }
    return groups;
  }

  /// Both groups in the rows of one of them, or in one row each if neither fits.
  [[nodiscard]] group together(const group& a, const group& b) {
    group result;
    result.samples = a.samples + b.samples;
    result.cost = int64_limit;
    for (const std::int64_t rows :
         {a.padded.rows, b.padded.rows, std::min(a.padded.rows, b.padded.rows) / 2, std::int64_t{1}}) {
      const shape s{std::max<std::int64_t>(1, rows), std::max(a.padded.input, b.padded.input),
                    std::max(a.padded.target, b.padded.target)};
      const std::int64_t cost = cost_of(s, result.samples);
      if (result.padded.rows > 0 && cost >= result.cost) continue;
      result.padded = s;
      result.cost = cost;
    }
    return result;
  }

  [[nodiscard]] wide_int loss(const group& a, const group& b, const group& both) const {
    return static_cast<wide_int>(both.cost) - a.cost - b.cost;
  }

  /// Rounds in which the cheaper half of all merges of neighbours is made, until `most_groups` are left.
  void merge_neighbours(std::vector<group>& groups) {
    while (groups.size() > most_groups) {
      std::vector<group> both;
      std::vector<wide_int> losses;
      for (std::size_t g = 0; g + 1 < groups.size(); ++g) {
        both.push_back(together(groups[g], groups[g + 1]));
        losses.push_back(loss(groups[g], groups[g + 1], both.back()));
      }
      std::vector<wide_int> sorted = losses;
      const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 4);
      std::nth_element(sorted.begin(), middle, sorted.end());
      std::vector<group> next;
      std::size_t count = groups.size();
      for (std::size_t g = 0; g < groups.size(); ++g) {
        if (count > most_groups && g + 1 < groups.size() && losses[g] <= *middle) {
          next.push_back(both[g]);
          --count;
          ++g;
        } else {
          next.push_back(groups[g]);
        }
      }
      groups.swap(next);
    }
  }

  void merge_cheapest(std::vector<group>& groups) {
    std::size_t at_a = 0;
    std::size_t at_b = 1;
    std::optional<wide_int> least;
    group merged;
    for (std::size_t a = 0; a < groups.size(); ++a)
      for (std::size_t b = a + 1; b < groups.size(); ++b) {
        const group both = together(groups[a], groups[b]);
        const wide_int now = loss(groups[a], groups[b], both);
        if (least && now >= *least) continue;
        least = now;
        merged = both;
        at_a = a;
        at_b = b;
      }
    groups[at_a] = merged;
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(at_b));
  }

  [[nodiscard]] static std::vector<shape> set_of(const std::vector<group>& groups) {
    std::vector<shape> set;
    for (const group& g : groups)
      set.push_back(g.padded);
    return set;
  }

  static void keep_better(filled& best, const filled& now) {
    if (now.value.better_than(best.value)) best = now;
  }

  /// The set as its fill leaves it, and what that costs.
  [[nodiscard]] filled value_of(const std::vector<shape>& set) {
    filled result{set, {}};
    while (left_ > 0) {
      --left_;
      const std::optional<set_cut> cut = filler_.fill(result.set);
      if (!cut) break;
      filled now;
      std::vector<std::int64_t> times;
      for (const shape& s : cut->held) {
        times.push_back(s.rows > 0 ? time_(s)->value() : 0);
        if (s.rows > 0) now.set.push_back(s);
      }
      now.value.times = {0, 0};
      for (const std::uint32_t s : cut->shape_of)
        now.value.times.sum = saturating_add(now.value.times.sum, times[s]);
      now.value.times.t_max = *std::max_element(times.begin(), times.end());
      now.value.objective = weights_.of(now.value.times.t_max, now.value.times.sum);
      if (!now.value.better_than(result.value)) break;
      result = now;
    }
    return result;
  }

  void improve(filled& best) {
    if (best.set.empty()) return;
    for (bool better = true; better && left_ > 0;) {
      better = false;
      for (std::size_t s = 0; s < best.set.size() && left_ > 0; ++s)
        for (std::size_t move = 0; move < 14 && left_ > 0 && s < best.set.size(); ++move) {
          std::vector<shape> set = best.set;
          if (!change(set, s, move)) continue;
          const filled now = value_of(set);
          if (!now.value.better_than(best.value)) continue;
          best = now;
          better = true;
        }
    }
  }

  [[nodiscard]] bool change(std::vector<shape>& set, std::size_t s, std::size_t move) const {
    shape& one = set[s];
    const shape before = one;
    switch (move) {
      case 0: set.erase(set.begin() + static_cast<std::ptrdiff_t>(s)); return !set.empty();
      case 1: ++one.rows; break;
      case 2: --one.rows; break;
      case 3: one.rows *= 2; break;
      case 4: one.rows /= 2; break;
      case 5: step(one.input, inputs_, 1); break;
      case 6: step(one.input, inputs_, -1); break;
      case 7: step(one.target, targets_, 1); break;
      case 8: step(one.target, targets_, -1); break;
      case 9: step(one.input, inputs_, 4); break;
      case 10: step(one.target, targets_, 4); break;
      case 11:
        ++one.rows;
        step(one.input, inputs_, -1);
        break;
      case 12:
        --one.rows;
        step(one.input, inputs_, 1);
        break;
      default:
        step(one.input, inputs_, 1);
        step(one.target, targets_, 1);
        break;
    }
    return one.rows > 0 && one != before;
  }

  /// Moves a length `steps` on in the list of those that occur; it stays at the ends.
  static void step(std::int64_t& length, const std::vector<std::int64_t>& values, std::ptrdiff_t steps) {
    const auto at = std::lower_bound(values.begin(), values.end(), length) - values.begin() + steps;
    if (at >= 0 && at < std::ssize(values)) length = values[static_cast<std::size_t>(at)];
  }

  std::span<const shape> alone_;
  ShapeTime& time_;
  objective_weights weights_;
  set_filler<ShapeTime> filler_;
  std::vector<std::int64_t> inputs_;
  std::vector<std::int64_t> targets_;
  std::size_t left_ = 0;  ///< fills that may still be tried
};

}  // namespace dynapipe::detail
