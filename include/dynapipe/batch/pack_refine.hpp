#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <dynapipe/batch/pack_ranks.hpp>

namespace dynapipe::detail {

/// Evens a packing out by exchanges that keep the cap, and whatever else is asked for.
///
/// Method: of the rank that takes longest (or, in lock-step, the slowest micro-batch of a step) and a lighter one, find
/// the exchange that leaves the lesser maximum of the two: an item for an item, an item for nothing, a whole
/// micro-batch for another. With items sorted by work the partner of each item is one that is lighter by half the
/// difference, found by one walk through both lists. An exchange is made only where it lowers the maximum of the two,
/// so the search ends; its moves are bounded besides. Nothing is random; of equal exchanges the first found counts.
/// Complexity: O(R) moves, each O(n / R + R) for n items on R ranks, and O((K / R) log (K / R)) for K micro-batches.
template <class Lazy = void>
class pack_refiner {
 public:
  pack_refiner(pack_ranks<>& ranks, std::int64_t samples)
      : ranks_{ranks},
        options_{ranks.options()},
        least_samples_{options_.equal_samples ? samples / options_.ranks : 0},
        most_samples_{options_.equal_samples ? ceil_div(samples, options_.ranks) : int64_limit} {}

  /// Lowers the largest rank value, until it is `target` or nothing helps.
  void even_ranks(wide_int target) {
    const std::size_t count = ranks_.all().size();
    std::vector<entry> order(count);
    for (std::size_t r = 0; r < count; ++r)
      order[r] = {ranks_.value(r), static_cast<std::uint32_t>(r)};
    std::sort(order.begin(), order.end());
    const auto renew = [&](std::uint32_t r) {
      order.erase(std::find_if(order.begin(), order.end(), [&](const entry& e) { return e.of == r; }));
      const entry e{ranks_.value(r), r};
      order.insert(std::lower_bound(order.begin(), order.end(), e), e);
    };
    const std::size_t most_moves = (8 * count + 32) * (options_.devices > 1 ? 4 : 1);
    for (std::size_t moves = 0; moves < most_moves && order.front().value > target; ++moves) {
      const std::uint32_t heavy = order.front().of;
      std::optional<exchange> found;
      if (options_.devices > 1) found = within_rank(heavy);
      for (std::size_t i = 0; i < partners && i + 1 < count && !found; ++i)
        found = between_ranks(heavy, order[count - 1 - i].of);
      if (!found) return;
      make(*found);
      renew(heavy);
      if (found->other != heavy) renew(found->other);
    }
  }

  /// Lowers the slowest micro-batch of each step, the m-th of all ranks.
  void even_steps() {
    ranks_.sort_bins();
    std::size_t steps = 0;
    for (const rank& r : ranks_.all())
      steps = std::max(steps, r.bins.size());
    for (std::size_t m = 0; m < steps; ++m) {
      std::vector<std::uint32_t> bins;
      for (const rank& r : ranks_.all())
        if (m < r.bins.size()) bins.push_back(r.bins[m]);
      for (std::size_t moves = 0; moves < 2 * bins.size(); ++moves)
        if (!even_step(bins)) break;
    }
  }

 private:
  using rank = pack_ranks<>::rank;
  static constexpr std::uint32_t none = 0xffffffff;
  static constexpr std::size_t partners = 12;     // lighter ranks that are tried before the search ends
  static constexpr std::size_t most_tried = 256;  // items, and micro-batches, of a rank that are offered

  /// A rank and its value; the largest comes first.
  struct entry {
    wide_int value = 0;
    std::uint32_t of = 0;

    friend bool operator<(const entry& a, const entry& b) {
      return a.value != b.value ? a.value > b.value : a.of < b.of;
    }
  };

  /// `give` goes to bin `to`, `take` (none: nothing) comes back; or two bins change their ranks.
  struct exchange {
    std::uint32_t give = none;
    std::uint32_t take = none;
    std::uint32_t to = none;
    std::uint32_t bin = none;
    std::uint32_t other_bin = none;
    std::uint32_t other = 0;  ///< the lighter rank
    wide_int score = 0;
  };

  void make(const exchange& e) {
    if (e.bin != none) {
      if (e.other_bin == none) {
        ranks_.move_bin(e.bin, e.other);
      } else {
        ranks_.swap_bins(e.bin, e.other_bin);
      }
      return;
    }
    const std::uint32_t from = ranks_.bin_of(e.give);
    ranks_.move(e.give, e.to);
    if (e.take != none) ranks_.move(e.take, from);
  }

  [[nodiscard]] bool samples_allow(const rank& a, const rank& b, std::int64_t moved) const {
    const auto within = [&](std::int64_t s) { return s >= least_samples_ && s <= most_samples_; };
    return moved == 0 || !options_.equal_samples || (within(a.samples - moved) && within(b.samples + moved));
  }

  /// A rank's slowest bin and the work of its second slowest.
  struct two_slowest {
    std::uint32_t bin = none;
    std::int64_t first = 0;
    std::int64_t second = 0;

    two_slowest(const pack_ranks<>& ranks, const rank& of) {
      for (const std::uint32_t b : of.bins) {
        const std::int64_t work = ranks.bin(b).work;
        if (bin == none || work > first) {
          second = first;
          first = work;
          bin = b;
        } else {
          second = std::max(second, work);
        }
      }
    }
    /// The slowest once bin `b` has `work`.
    [[nodiscard]] std::int64_t with(std::uint32_t b, std::int64_t work) const {
      return std::max(b == bin ? second : first, work);
    }
  };

  /// The best exchange of an item of `mine` against one of `theirs`, or against nothing, with work near `half`.
  /// `score(b, c, x)` judges bins b and c after work x went from b to c; only what is below `best.score` counts.
  template <class Score>
  void search_items(std::span<const std::uint32_t> mine, std::span<const std::uint32_t> theirs, std::int64_t half,
                    Score&& score, exchange& best) const {
    if (half <= 0) return;
    const auto offer = [&](std::uint32_t give, std::uint32_t take, std::uint32_t to) {
      const std::uint32_t from = ranks_.bin_of(give);
      if (from == to) return;
      const std::int64_t back_size = take == none ? 0 : ranks_.item(take).size;
      const std::int64_t back_work = take == none ? 0 : ranks_.item(take).work;
      const std::int64_t back_samples = take == none ? 0 : ranks_.item(take).samples;
      const pack_item& item = ranks_.item(give);
      if (item.work <= back_work || ranks_.bin(to).size + item.size - back_size > options_.cap ||
          ranks_.bin(from).size - item.size + back_size > options_.cap)
        return;
      const wide_int value = score(from, to, item.work - back_work);
      if (value >= best.score) return;
      if (!samples_allow(ranks_.all()[ranks_.bin(from).rank], ranks_.all()[ranks_.bin(to).rank],
                         item.samples - back_samples))
        return;
      best = {.give = give, .take = take, .to = to, .score = value};
    };
    const std::size_t stride = mine.size() / most_tried + 1;
    std::size_t at = 0;
    for (std::size_t i = 0; i < mine.size(); i += stride) {
      const std::int64_t wanted = ranks_.item(mine[i]).work - half;
      if (wanted < 0) break;
      while (at < theirs.size() && ranks_.item(theirs[at]).work > wanted)
        ++at;
      const std::size_t end = std::min(theirs.size(), at + 3);
      for (std::size_t j = at > 3 ? at - 3 : 0; j < end; ++j)
        offer(mine[i], theirs[j], ranks_.bin_of(theirs[j]));
    }
    search_moves(mine, theirs, half, offer);
  }

  /// Items alone, those whose work is nearest to `half`, to the bin of least work that has room.
  template <class Offer>
  void search_moves(std::span<const std::uint32_t> mine, std::span<const std::uint32_t> theirs, std::int64_t half,
                    Offer&& offer) const {
    if (mine.empty() || theirs.empty()) return;
    const auto near =
        std::partition_point(mine.begin(), mine.end(), [&](std::uint32_t p) { return ranks_.item(p).work > half; });
    const std::size_t at = static_cast<std::size_t>(near - mine.begin());
    const rank& other = ranks_.all()[ranks_.bin(ranks_.bin_of(theirs.front())).rank];
    for (std::size_t i = at > 3 ? at - 3 : 0; i < std::min(mine.size(), at + 3); ++i) {
      if (ranks_.bin(ranks_.bin_of(mine[i])).items < 2) continue;
      std::uint32_t to = none;
      for (const std::uint32_t b : other.bins)
        if (b != ranks_.bin_of(mine[i]) && ranks_.bin(b).size <= options_.cap - ranks_.item(mine[i]).size &&
            (to == none || ranks_.bin(b).work < ranks_.bin(to).work))
          to = b;
      if (to != none) offer(mine[i], none, to);
    }
  }

  std::optional<exchange> between_ranks(std::uint32_t heavy, std::uint32_t light) const {
    const rank& a = ranks_.all()[heavy];
    const rank& b = ranks_.all()[light];
    const wide_int now = ranks_.value(heavy);
    const wide_int gap = now - ranks_.value(light);
    exchange best{.score = now};
    if (gap <= 0) return std::nullopt;
    const two_slowest slow_a{ranks_, a};
    const two_slowest slow_b{ranks_, b};
    const auto judge = [&](std::int64_t x, std::int64_t slowest_a, std::int64_t slowest_b) {
      return std::max(rank_value(options_, ranks_.count(a), a.work - x, slowest_a),
                      rank_value(options_, ranks_.count(b), b.work + x, slowest_b));
    };
    const std::int64_t half = std::max<std::int64_t>(1, saturate(gap / (2 * options_.stages_per_device)));
    search_items(
        a.items, b.items, half,
        [&](std::uint32_t from, std::uint32_t to, std::int64_t x) {
          return judge(x, slow_a.with(from, ranks_.bin(from).work - x), slow_b.with(to, ranks_.bin(to).work + x));
        },
        best);
    search_bins(a, b, half, judge, slow_a, slow_b, best);
    if (best.score >= now) return std::nullopt;
    best.other = light;
    return best;
  }

  template <class Judge>
  void search_bins(const rank& a, const rank& b, std::int64_t half, Judge&& judge, const two_slowest& slow_a,
                   const two_slowest& slow_b, exchange& best) const {
    std::vector<std::uint32_t> theirs;
    for (std::size_t i = 0; i < b.bins.size(); i += b.bins.size() / most_tried + 1)
      theirs.push_back(b.bins[i]);
    std::sort(theirs.begin(), theirs.end(), [&](std::uint32_t x, std::uint32_t y) {
      return ranks_.bin(x).work != ranks_.bin(y).work ? ranks_.bin(x).work > ranks_.bin(y).work : x < y;
    });
    for (std::size_t i = 0; i < a.bins.size(); i += a.bins.size() / most_tried + 1) {
      const std::uint32_t mine = a.bins[i];
      const std::int64_t work = ranks_.bin(mine).work;
      const auto near = std::partition_point(theirs.begin(), theirs.end(),
                                             [&](std::uint32_t c) { return ranks_.bin(c).work > work - half; });
      const std::size_t at = static_cast<std::size_t>(near - theirs.begin());
      for (std::size_t j = at > 2 ? at - 2 : 0; j < std::min(theirs.size(), at + 2); ++j) {
        const pack_bin& other = ranks_.bin(theirs[j]);
        if (other.work >= work || !samples_allow(a, b, ranks_.bin(mine).samples - other.samples)) continue;
        const wide_int value = judge(work - other.work, slow_a.with(mine, other.work), slow_b.with(theirs[j], work));
        if (value < best.score) best = {.bin = mine, .other_bin = theirs[j], .score = value};
      }
    }
    if (ranks_.counts_differ() && options_.count_multiple == 1 &&
        a.bins.size() > static_cast<std::size_t>(std::max<std::int64_t>(1, options_.least_count)))
      for (const std::uint32_t mine : a.bins) {
        if (!samples_allow(a, b, ranks_.bin(mine).samples)) continue;
        const std::int64_t work = ranks_.bin(mine).work;
        const wide_int value =
            std::max(rank_value(options_, ranks_.count(a) - 1, a.work - work, slow_a.with(mine, 0)),
                     rank_value(options_, ranks_.count(b) + 1, b.work + work, std::max(slow_b.first, work)));
        if (value < best.score) best = {.bin = mine, .score = value};
      }
  }

  /// Takes work from a rank's slowest bin to its others.
  std::optional<exchange> within_rank(std::uint32_t heavy) const {
    const rank& a = ranks_.all()[heavy];
    const two_slowest slow{ranks_, a};
    const wide_int now = slow.first;
    exchange best{.score = now};
    std::vector<std::uint32_t> mine;
    std::vector<std::uint32_t> theirs;
    for (const std::uint32_t p : a.items)
      (ranks_.bin_of(p) == slow.bin ? mine : theirs).push_back(p);
    const std::int64_t mean = a.work / std::max<std::int64_t>(1, static_cast<std::int64_t>(a.bins.size()));
    search_items(
        mine, theirs, (slow.first - mean) / 2,
        [&](std::uint32_t from, std::uint32_t to, std::int64_t x) {
          return std::max<wide_int>(ranks_.bin(from).work - x, ranks_.bin(to).work + x);
        },
        best);
    if (best.give == none || best.score > now - now / 512) return std::nullopt;
    best.other = heavy;
    return best;
  }

  /// One exchange between the slowest bin of a step and a lighter one.
  bool even_step(std::vector<std::uint32_t>& bins) {
    std::sort(bins.begin(), bins.end(), [&](std::uint32_t a, std::uint32_t b) {
      return ranks_.bin(a).work != ranks_.bin(b).work ? ranks_.bin(a).work > ranks_.bin(b).work : a < b;
    });
    const std::uint32_t from = bins.front();
    const std::int64_t now = ranks_.bin(from).work;
    const std::vector<std::uint32_t> mine = members(from);
    for (std::size_t i = 0; i < partners && i + 1 < bins.size(); ++i) {
      const std::uint32_t to = bins[bins.size() - 1 - i];
      const std::int64_t gap = now - ranks_.bin(to).work;
      if (gap <= now / 4096) return false;
      exchange best{.score = now};
      const auto score = [&](std::uint32_t b, std::uint32_t c, std::int64_t x) {
        return c == to ? std::max<wide_int>(ranks_.bin(b).work - x, ranks_.bin(c).work + x) : wide_int{now};
      };
      search_items(mine, members(to), std::max<std::int64_t>(1, gap / 2), score, best);
      if (best.score >= now) continue;
      make(best);
      return true;
    }
    return false;
  }

  [[nodiscard]] std::vector<std::uint32_t> members(std::uint32_t b) const {
    std::vector<std::uint32_t> result;
    for (const std::uint32_t p : ranks_.all()[ranks_.bin(b).rank].items)
      if (ranks_.bin_of(p) == b) result.push_back(p);
    return result;
  }

  pack_ranks<>& ranks_;
  const pack_options& options_;
  std::int64_t least_samples_;
  std::int64_t most_samples_;
};

}  // namespace dynapipe::detail
