#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <dynapipe/batch/spread_problem.hpp>
#include <dynapipe/batch/spread_start.hpp>

namespace dynapipe::detail {

/// Evens a spread out by moves and swaps.
///
/// Method: of the replica that takes longest and a lighter one, find the swap, or move where counts may change, that
/// leaves the lesser maximum of the two: with items sorted by time the partner of each item is one shorter by half the
/// difference, found by one walk through both lists, class by class of samples where their numbers are to be equal. An
/// exchange is made only where it lowers that maximum, so the search ends; its steps are bounded besides.
/// `even_samples` comes first where numbers of samples are to be equal: it takes whatever exchange makes them most so,
/// of equal ones that which changes times least. Nothing is random, of equal exchanges the first found counts.
/// Complexity: O(R) steps, each O(n / R + R) for n items on R replicas, times the classes of samples.
class spread_refiner {
 public:
  /// Moves leave `least` items at least.
  spread_refiner(const spread_problem& p, const spread_places& where, bool moves, std::int64_t least)
      : p_{p}, moves_{moves}, least_{static_cast<std::size_t>(least)}, replicas_(p.replicas()) {
    for (std::size_t i = 0; i < where.size(); ++i) {
      replica& r = replicas_[where[i]];
      r.items.push_back(static_cast<std::uint32_t>(i));
      r.sum += time(i);
      r.samples += p.items[i].samples;
    }
    for (replica& r : replicas_) {
      r.value = value_of(r);
      if (p.options.equal_samples)
        std::sort(r.items.begin(), r.items.end(), [&](std::uint32_t a, std::uint32_t b) { return before(a, b); });
    }
  }

  [[nodiscard]] spread_places places() const {
    spread_places where(p_.items.size());
    for (std::size_t r = 0; r < replicas_.size(); ++r)
      for (const std::uint32_t i : replicas_[r].items)
        where[i] = static_cast<std::uint32_t>(r);
    return where;
  }
  [[nodiscard]] wide_int objective() const {
    wide_int most = 0;
    for (const replica& r : replicas_)
      most = std::max(most, r.value);
    return most;
  }

  /// True when all replicas have the samples that they should.
  [[nodiscard]] bool even_samples() {
    for (std::size_t steps = 0; steps < 4 * p_.items.size() + 16; ++steps) {
      std::vector<std::uint32_t> off;
      for (std::size_t r = 0; r < replicas_.size(); ++r)
        if (p_.samples_off(replicas_[r].samples) > 0) off.push_back(static_cast<std::uint32_t>(r));
      if (off.empty()) return true;
      std::sort(off.begin(), off.end(), [&](std::uint32_t a, std::uint32_t b) {
        const std::int64_t x = p_.samples_off(replicas_[a].samples), y = p_.samples_off(replicas_[b].samples);
        return x != y ? x > y : a < b;
      });
      exchange best;
      for (std::size_t i = 0; i < off.size() && best.gain == 0; ++i)
        for (std::uint32_t other = 0; other < replicas_.size(); ++other)
          if (other != off[i]) search_samples(off[i], other, best);
      if (best.gain == 0) return false;
      make(best);
    }
    return false;
  }

  /// Lowers the largest replica, until it is `target` or nothing helps.
  void even_times(wide_int target) {
    struct entry {
      wide_int value;
      std::uint32_t replica;
    };
    const std::size_t count = replicas_.size();
    std::vector<entry> order(count);
    for (std::size_t moves = 0; moves < 16 * count + 64; ++moves) {
      for (std::uint32_t r = 0; r < count; ++r)
        order[r] = {replicas_[r].value, r};
      std::sort(order.begin(), order.end(), [](const entry& a, const entry& b) {
        return a.value != b.value ? a.value > b.value : a.replica < b.replica;
      });
      if (order.front().value <= target) return;
      std::optional<exchange> found;
      for (std::size_t i = 0; i < partners && i + 1 < count && !found; ++i)
        found = between(order.front().replica, order[count - 1 - i].replica);
      if (!found) return;
      make(*found);
    }
  }

 private:
  static constexpr std::uint32_t none = 0xffffffff;
  static constexpr std::size_t partners = 32;  // lighter replicas that are tried before the search ends

  struct replica {
    std::vector<std::uint32_t> items;  ///< by samples where those count, then longest first
    std::int64_t sum = 0;
    std::int64_t samples = 0;
    wide_int value = 0;
  };
  /// `give` leaves `from` for `to`, `take` comes back; either may be none.
  struct exchange {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint32_t give = none;
    std::uint32_t take = none;
    std::int64_t gain = 0;    ///< in samples
    std::int64_t change = 0;  ///< of times
  };
  struct two_longest {
    std::uint32_t item = none;
    std::int64_t first = 0;
    std::int64_t second = 0;

    [[nodiscard]] std::int64_t without(std::uint32_t i) const { return i == item ? second : first; }
  };
  using run = std::span<const std::uint32_t>;

  [[nodiscard]] std::int64_t time(std::size_t i) const { return i == none ? 0 : p_.items[i].time; }
  [[nodiscard]] std::int64_t samples(std::size_t i) const {
    return i == none || !p_.options.equal_samples ? 0 : p_.items[i].samples;
  }
  [[nodiscard]] bool before(std::uint32_t a, std::uint32_t b) const {
    return samples(a) != samples(b) ? samples(a) > samples(b) : a < b;
  }
  [[nodiscard]] two_longest longest(const replica& r) const {
    two_longest two;
    for (const std::uint32_t i : r.items) {
      if (two.item == none || time(i) > two.first) {
        two.second = two.first;
        two.first = time(i);
        two.item = i;
      } else {
        two.second = std::max(two.second, time(i));
      }
    }
    return two;
  }
  [[nodiscard]] wide_int value_of(const replica& r) const { return p_.value(r.sum, longest(r).first); }

  /// The items of equal samples that begin at `at`.
  [[nodiscard]] run run_at(const replica& r, std::size_t at) const {
    if (!p_.options.equal_samples) return run{r.items}.subspan(at);
    std::size_t end = at;
    while (end < r.items.size() && samples(r.items[end]) == samples(r.items[at]))
      ++end;
    return run{r.items}.subspan(at, end - at);
  }

  /// Calls `use(mine, theirs)` for the runs of both; an empty run stands for a move.
  template <class Use>
  void for_runs(const replica& a, const replica& b, bool may_take_alone, Use&& use) const {
    const bool may_give = moves_ && a.items.size() > least_;
    for (std::size_t i = 0; i < a.items.size();) {
      const run mine = run_at(a, i);
      for (std::size_t j = 0; j < b.items.size();) {
        const run theirs = run_at(b, j);
        use(mine, theirs);
        j += theirs.size();
      }
      if (may_give) use(mine, run{});
      i += mine.size();
    }
    if (!may_take_alone || !moves_ || b.items.size() <= least_) return;
    for (std::size_t j = 0; j < b.items.size();) {
      const run theirs = run_at(b, j);
      use(run{}, theirs);
      j += theirs.size();
    }
  }

  void search_samples(std::uint32_t a, std::uint32_t b, exchange& best) const {
    const replica& x = replicas_[a];
    const replica& y = replicas_[b];
    const std::int64_t now = p_.samples_off(x.samples) + p_.samples_off(y.samples);
    for_runs(x, y, true, [&](run mine, run theirs) {
      const std::int64_t moved = (mine.empty() ? 0 : samples(mine[0])) - (theirs.empty() ? 0 : samples(theirs[0]));
      const std::int64_t gain = now - p_.samples_off(x.samples - moved) - p_.samples_off(y.samples + moved);
      if (gain <= 0 || gain < best.gain) return;
      const auto offer = [&](std::uint32_t give, std::uint32_t take) {
        const std::int64_t change = time(give) > time(take) ? time(give) - time(take) : time(take) - time(give);
        if (gain > best.gain || change < best.change) best = {a, b, give, take, gain, change};
      };
      if (mine.empty()) return offer(none, theirs.back());
      if (theirs.empty()) return offer(mine.back(), none);
      std::size_t j = 0;
      for (const std::uint32_t i : mine) {
        while (j + 1 < theirs.size() && time(theirs[j]) > time(i))
          ++j;
        offer(i, theirs[j]);
        if (j > 0) offer(i, theirs[j - 1]);
      }
    });
  }

  std::optional<exchange> between(std::uint32_t heavy, std::uint32_t light) const {
    const replica& a = replicas_[heavy];
    const replica& b = replicas_[light];
    const two_longest long_a = longest(a);
    const two_longest long_b = longest(b);
    const wide_int now = a.value;
    const wide_int gap = now - b.value;
    if (gap <= 0) return std::nullopt;
    const std::int64_t half = saturate(gap / (2 * p_.options.stages_per_device));
    wide_int least = now;
    std::optional<exchange> best;
    const auto offer = [&](std::uint32_t give, std::uint32_t take) {
      const std::int64_t x = time(give) - time(take);
      const wide_int of_a = p_.value(a.sum - x, std::max(long_a.without(give), time(take)));
      const wide_int of_b = p_.value(b.sum + x, std::max(long_b.without(take), time(give)));
      if (std::max(of_a, of_b) >= least) return;
      least = std::max(of_a, of_b);
      best = exchange{.from = heavy, .to = light, .give = give, .take = take};
    };
    for_runs(a, b, false, [&](run mine, run theirs) {
      const std::int64_t moved = samples(mine[0]) - (theirs.empty() ? 0 : samples(theirs[0]));
      if (p_.options.equal_samples && p_.samples_off(a.samples - moved) + p_.samples_off(b.samples + moved) > 0) return;
      if (theirs.empty()) {
        const auto at = static_cast<std::size_t>(
            std::partition_point(mine.begin(), mine.end(), [&](std::uint32_t i) { return time(i) > half; }) -
            mine.begin());
        for (std::size_t i = at > 1 ? at - 2 : 0; i < std::min(mine.size(), at + 2); ++i)
          offer(mine[i], none);
        if (mine[0] == long_a.item) offer(mine[0], none);
        return;
      }
      std::size_t at = 0;
      for (const std::uint32_t i : mine) {
        while (at < theirs.size() && time(theirs[at]) > time(i) - half)
          ++at;
        for (std::size_t j = at > 1 ? at - 2 : 0; j < std::min(theirs.size(), at + 2); ++j)
          offer(i, theirs[j]);
      }
      // What becomes the longest counts more than the sums: for the longest of the heavy one any partner may do.
      if (mine[0] == long_a.item && p_.options.devices > 1)
        for (const std::uint32_t j : theirs)
          offer(mine[0], j);
    });
    return best;
  }

  void make(const exchange& e) {
    shift(e.give, replicas_[e.from], replicas_[e.to]);
    shift(e.take, replicas_[e.to], replicas_[e.from]);
    replicas_[e.from].value = value_of(replicas_[e.from]);
    replicas_[e.to].value = value_of(replicas_[e.to]);
  }
  void shift(std::uint32_t i, replica& from, replica& to) {
    if (i == none) return;
    const auto less = [&](std::uint32_t a, std::uint32_t b) { return before(a, b); };
    from.items.erase(std::lower_bound(from.items.begin(), from.items.end(), i, less));
    to.items.insert(std::lower_bound(to.items.begin(), to.items.end(), i, less), i);
    from.sum -= time(i);
    to.sum += time(i);
    from.samples -= p_.items[i].samples;
    to.samples += p_.items[i].samples;
  }

  const spread_problem& p_;
  bool moves_;
  std::size_t least_;
  std::vector<replica> replicas_;
};

}  // namespace dynapipe::detail
