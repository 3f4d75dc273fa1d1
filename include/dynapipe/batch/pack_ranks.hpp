#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <dynapipe/batch/pack_problem.hpp>

namespace dynapipe::detail {

/// A packing seen from its ranks: each rank's bins, and its items in the order of positions, so by falling work.
template <class Lazy = void>
class pack_ranks {
 public:
  struct rank {
    std::vector<std::uint32_t> bins;
    std::vector<std::uint32_t> items;
    std::int64_t work = 0;
    std::int64_t samples = 0;
  };

  /// `count`: micro-batches of every rank; 0 where they differ. Call `deal`, or `gather` where bins have their ranks.
  pack_ranks(const pack_sorted& sorted, const pack_options& options, pack_layout& layout, std::int64_t count)
      : sorted_{sorted}, options_{options}, layout_{layout}, count_{count} {}

  [[nodiscard]] const pack_options& options() const { return options_; }
  [[nodiscard]] const std::vector<rank>& all() const { return ranks_; }
  [[nodiscard]] std::vector<rank>& all() { return ranks_; }
  [[nodiscard]] const pack_item& item(std::uint32_t p) const { return sorted_.items[p]; }
  [[nodiscard]] pack_bin& bin(std::uint32_t b) { return layout_.bins[b]; }
  [[nodiscard]] const pack_bin& bin(std::uint32_t b) const { return layout_.bins[b]; }
  [[nodiscard]] std::uint32_t bin_of(std::uint32_t p) const { return layout_.bin_of[p]; }

  /// Micro-batches of a rank, dummies too.
  [[nodiscard]] std::int64_t count(const rank& r) const {
    return count_ > 0 ? count_ : padded_count(options_, static_cast<std::int64_t>(r.bins.size()));
  }
  [[nodiscard]] bool counts_differ() const { return count_ == 0; }
  [[nodiscard]] std::int64_t slowest(const rank& r) const {
    std::int64_t most = 0;
    for (const std::uint32_t b : r.bins)
      most = std::max(most, bin(b).work);
    return most;
  }
  [[nodiscard]] wide_int value(const rank& r) const { return rank_value(options_, count(r), r.work, slowest(r)); }
  [[nodiscard]] wide_int value(std::size_t r) const { return value(ranks_[r]); }

  /// Moves an item to a bin.
  void move(std::uint32_t p, std::uint32_t to) {
    const std::uint32_t from = layout_.bin_of[p];
    bin(from).remove(item(p));
    bin(to).add(item(p));
    layout_.bin_of[p] = to;
    if (bin(from).rank == bin(to).rank) return;
    leave(ranks_[bin(from).rank], p);
    enter(ranks_[bin(to).rank], p);
  }

  /// Gives two bins of different ranks each other's rank.
  void swap_bins(std::uint32_t a, std::uint32_t b) {
    rank& x = ranks_[bin(a).rank];
    rank& y = ranks_[bin(b).rank];
    *std::find(x.bins.begin(), x.bins.end(), a) = b;
    *std::find(y.bins.begin(), y.bins.end(), b) = a;
    std::swap(bin(a).rank, bin(b).rank);
    regather(x, y);
  }

  /// Gives a bin to another rank.
  void move_bin(std::uint32_t b, std::uint32_t to) {
    rank& x = ranks_[bin(b).rank];
    x.bins.erase(std::find(x.bins.begin(), x.bins.end(), b));
    ranks_[to].bins.push_back(b);
    bin(b).rank = to;
    regather(x, ranks_[to]);
  }

  /// Deals all bins with items to the ranks anew. Where counts are equal: in rounds of as many bins as there are ranks,
  /// slowest rounds first, in each the slowest bin to the rank of least work, so that the m-th bins of all ranks are
  /// alike. Where they differ: each bin, slowest first, to the rank of least time; or, to keep multiples, in rounds,
  /// and what is left to the ranks that are lightest then. Ties go to the lower number. O(K log K).
  void deal() {
    std::vector<std::uint32_t> bins;
    for (std::size_t b = 0; b < layout_.bins.size(); ++b)
      if (layout_.bins[b].items > 0) bins.push_back(static_cast<std::uint32_t>(b));
    std::sort(bins.begin(), bins.end(), [&](std::uint32_t a, std::uint32_t b) { return slower(a, b); });
    ranks_.assign(static_cast<std::size_t>(options_.ranks), {});
    std::vector<std::uint32_t> order(ranks_.size());
    std::iota(order.begin(), order.end(), std::uint32_t{0});
    std::size_t next = 0;
    const auto give = [&](std::uint32_t r) {
      const std::uint32_t b = bins[next++];
      ranks_[r].bins.push_back(b);
      ranks_[r].work += bin(b).work;
      bin(b).rank = r;
    };
    const auto round = [&](std::size_t members) {
      std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(members),
                [&](std::uint32_t a, std::uint32_t b) { return lighter(a, b); });
      for (std::size_t i = 0; i < members; ++i)
        give(order[i]);
    };
    if (!counts_differ()) {
      while (next < bins.size())
        round(std::min(ranks_.size(), bins.size() - next));
    } else if (options_.count_multiple == 1 || options_.dummies) {
      const auto heavier = [&](std::uint32_t a, std::uint32_t b) { return lighter(b, a); };
      std::make_heap(order.begin(), order.end(), heavier);
      while (next < bins.size()) {
        std::pop_heap(order.begin(), order.end(), heavier);
        give(order.back());
        std::push_heap(order.begin(), order.end(), heavier);
      }
    } else {
      const std::size_t multiple = static_cast<std::size_t>(options_.count_multiple);
      const std::size_t full = bins.size() / (ranks_.size() * multiple) * multiple;
      for (std::size_t m = 0; m < full; ++m)
        round(ranks_.size());
      const std::size_t rest = (bins.size() - next) / multiple;
      std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return lighter(a, b); });
      while (next < bins.size())
        round(rest);
    }
    gather();
  }

  /// Puts each rank's bins slowest first.
  void sort_bins() {
    for (rank& r : ranks_)
      std::sort(r.bins.begin(), r.bins.end(), [&](std::uint32_t a, std::uint32_t b) { return slower(a, b); });
  }

  /// Reads all ranks from the layout.
  void gather() {
    ranks_.assign(static_cast<std::size_t>(options_.ranks), {});
    for (std::size_t b = 0; b < layout_.bins.size(); ++b)
      if (layout_.bins[b].items > 0) ranks_[layout_.bins[b].rank].bins.push_back(static_cast<std::uint32_t>(b));
    for (std::size_t p = 0; p < layout_.bin_of.size(); ++p) {
      rank& r = ranks_[bin(layout_.bin_of[p]).rank];
      r.items.push_back(static_cast<std::uint32_t>(p));
      r.work += sorted_.items[p].work;
      r.samples += sorted_.items[p].samples;
    }
  }

  /// The scaled objective.
  [[nodiscard]] wide_int objective() {
    wide_int most = 0;
    if (!options_.lock_step) {
      for (const rank& r : ranks_)
        most = std::max(most, value(r));
      return most;
    }
    sort_bins();
    std::int64_t slowest = 0;
    wide_int sum = 0;
    for (std::size_t m = 0; m < static_cast<std::size_t>(count_); ++m) {
      std::int64_t step = 0;
      for (const rank& r : ranks_)
        if (m < r.bins.size()) step = std::max(step, bin(r.bins[m]).work);
      slowest = std::max(slowest, step);
      sum += step;
    }
    return rank_value(options_, count_, sum, slowest);
  }

 private:
  [[nodiscard]] bool slower(std::uint32_t a, std::uint32_t b) const {
    return bin(a).work != bin(b).work ? bin(a).work > bin(b).work : a < b;
  }

  /// A rank short of the least count comes first, then one of less time.
  [[nodiscard]] bool lighter(std::uint32_t a, std::uint32_t b) const {
    const auto size = [&](std::uint32_t r) { return static_cast<std::int64_t>(ranks_[r].bins.size()); };
    const auto time = [&](std::uint32_t r) { return ranks_[r].work + options_.fixed * size(r); };
    const auto is_short = [&](std::uint32_t r) { return size(r) < std::max<std::int64_t>(1, options_.least_count); };
    if (is_short(a) != is_short(b)) return is_short(a);
    return time(a) != time(b) ? time(a) < time(b) : a < b;
  }

  void regather(rank& x, rank& y) {
    std::vector<std::uint32_t> both(x.items.size() + y.items.size());
    std::merge(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(), both.begin());
    for (rank* r : {&x, &y}) {
      r->items.clear();
      r->work = 0;
      r->samples = 0;
    }
    for (const std::uint32_t p : both) {
      rank& r = ranks_[bin(layout_.bin_of[p]).rank];
      r.items.push_back(p);
      r.work += item(p).work;
      r.samples += item(p).samples;
    }
  }

  void enter(rank& r, std::uint32_t p) {
    r.items.insert(std::lower_bound(r.items.begin(), r.items.end(), p), p);
    r.work += item(p).work;
    r.samples += item(p).samples;
  }
  void leave(rank& r, std::uint32_t p) {
    r.items.erase(std::lower_bound(r.items.begin(), r.items.end(), p));
    r.work -= item(p).work;
    r.samples -= item(p).samples;
  }

  const pack_sorted& sorted_;
  const pack_options& options_;
  pack_layout& layout_;
  std::int64_t count_;
  std::vector<rank> ranks_;
};

}  // namespace dynapipe::detail
