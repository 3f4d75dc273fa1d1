#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <dynapipe/batch/pack_bound.hpp>
#include <dynapipe/batch/pack_exact.hpp>
#include <dynapipe/batch/pack_fill.hpp>
#include <dynapipe/batch/pack_problem.hpp>
#include <dynapipe/batch/pack_ranks.hpp>
#include <dynapipe/batch/pack_refine.hpp>
#include <dynapipe/batch/pack_together.hpp>

namespace dynapipe::detail {

/// Finds a packing: the numbers of micro-batches to try, for each a fill, a deal and a refinement; see `pack`.
template <class Lazy = void>
class pack_solver {
 public:
  struct candidate {
    pack_layout layout;
    std::int64_t count = 0;  ///< micro-batches of every rank; 0 where they differ
    wide_int objective = 0;
    std::int64_t longest = 0;
  };

  pack_solver(const pack_sorted& sorted, const pack_options& options)
      : sorted_{sorted},
        options_{options},
        works_{sorted, options.ranks},
        bins_{least_bins(sorted, options.cap)},
        counts_{counts_of(options, sorted.size(), bins_)},
        start_{count_of_least_bound(options, counts_, sorted)} {}

  [[nodiscard]] const pack_counts& counts() const { return counts_; }
  /// The bins that the sizes force.
  [[nodiscard]] std::int64_t least_bins_needed() const { return bins_; }
  [[nodiscard]] wide_int bound() const { return bound_; }
  /// Whether `solve` looked at everything.
  [[nodiscard]] bool complete() const { return complete_; }

  std::optional<candidate> solve() {
    if (counts_.most < counts_.least) return std::nullopt;
    bound_ = start_.bound;
    if (!counts_.per_rank) {
      pack_options equal = options_;
      equal.equal_counts = true;
      pack_solver<> other{sorted_, equal};
      if (other.counts_.least <= other.counts_.most) other.try_counts();
      if (other.best_) keep(std::move(*other.best_));
    }
    try_counts();
    search();
    return std::move(best_);
  }

 private:
  static constexpr std::size_t few_items = 12;
  static constexpr std::size_t provable_items = 48;
  static constexpr std::size_t many_items = 1 << 16;
  static constexpr std::int64_t search_nodes = 100'000;

  void keep(candidate&& found) {
    if (!best_ || found.objective < best_->objective ||
        (found.objective == best_->objective && found.longest < best_->longest))
      best_ = std::move(found);
  }

  /// From the count of least bound upwards, until one fits; then its neighbours, where they may be better.
  void try_counts() {
    std::int64_t count = start_.count;
    // Where a fill takes long, counts that first-fit decreasing does not reach are left out at once.
    const int tries = sorted_.size() > many_items ? 0 : 3;
    if (tries == 0) count = std::max(count, sure_count());
    for (int tried = 1; count <= counts_.most && !uneven_ && !attempt(count); ++tried) {
      count += counts_.step;
      if (tried == tries) count = std::max(count, sure_count());
    }
    if (!best_) {
      for (count = start_.count - counts_.step; count >= counts_.least && !uneven_ && !attempt(count);)
        count -= counts_.step;
      return;
    }
    // With a pipeline, one more of many changes little, and the bound is too far away to say so.
    if (options_.devices > 1 && count > 16 * counts_.step) return;
    for (const std::int64_t other : {count + counts_.step, count - counts_.step})
      if (other >= counts_.least && other <= counts_.most && best_->objective - bound_ > bound_ / 2048 &&
          bound_between(options_, counts_, sorted_, works_, other, other) < best_->objective)
        attempt(other);
  }

  /// The least count that holds as many bins as first-fit decreasing takes.
  [[nodiscard]] std::int64_t sure_count() const {
    const pack_filler<> filler{sorted_, options_.cap, sorted_.by_size};
    const std::int64_t bins = static_cast<std::int64_t>(filler.first_fit_bins());
    return round_up(counts_.per_rank ? ceil_div(bins, options_.ranks) : bins, counts_.step);
  }

  bool attempt(std::int64_t count) {
    candidate made{.layout = {}, .count = counts_.per_rank ? count : 0};
    made.layout.bin_of.assign(sorted_.size(), 0);
    pack_ranks<> ranks{sorted_, options_, made.layout, made.count};
    if (options_.equal_samples) {
      if (!fill_by_samples(made.layout, count)) return false;
      ranks.gather();
    } else {
      made.layout.bins.resize(static_cast<std::size_t>(counts_.per_rank ? count * options_.ranks : count));
      const pack_filler<> filler{sorted_, options_.cap, sorted_.by_size};
      if (!filler.fill(made.layout, 0, made.layout.bins.size())) return false;
      ranks.deal();
    }
    refine(std::move(made), ranks, count);
    if (options_.devices > 1 && options_.ranks > 1 && made_apart()) attempt_together(count);
    return true;
  }

  /// Whether long items may be put together: nothing else says which rank an item is on.
  [[nodiscard]] bool made_apart() const {
    return counts_.per_rank && !options_.equal_samples && !options_.lock_step &&
           best_->objective - bound_ > bound_ / 256;
  }

  void attempt_together(std::int64_t count) {
    const pack_together<> together{sorted_, options_, count};
    std::optional<pack_together<>::lists> lists =
        together.deal(bound_between(options_, counts_, sorted_, works_, count, count), best_->objective);
    if (!lists) return;
    candidate made{.layout = {}, .count = count};
    made.layout.bin_of.assign(sorted_.size(), 0);
    if (!fill_lists(made.layout, *lists, count)) return;
    pack_ranks<> ranks{sorted_, options_, made.layout, made.count};
    ranks.gather();
    refine(std::move(made), ranks, count);
  }

  /// `ranks` are those of `made`.
  void refine(candidate&& made, pack_ranks<>& ranks, std::int64_t count) {
    pack_refiner<> refiner{ranks, sorted_.samples};
    if (options_.lock_step) {
      refiner.even_steps();
      if (!options_.equal_samples) ranks.deal();
    } else {
      const wide_int bound = bound_between(options_, counts_, sorted_, works_, count, count);
      refiner.even_ranks(bound + bound / 8192);
    }
    made.objective = ranks.objective();
    made.longest = longest(ranks);
    keep(std::move(made));
  }

  [[nodiscard]] std::int64_t longest(const pack_ranks<>& ranks) const {
    std::int64_t most = 0;
    for (const auto& r : ranks.all())
      most = std::max(most, saturate(r.work + static_cast<wide_int>(options_.fixed) * ranks.count(r)));
    return most;
  }

  /// Deals the items to the ranks by their samples, each to a rank that has least, of these to one of least work (or
  /// size); then fills each rank's bins.
  bool fill_by_samples(pack_layout& layout, std::int64_t count) {
    for (const auto load : {&pack_item::work, &pack_item::size}) {
      std::vector<std::vector<std::uint32_t>> lists = deal_samples(load);
      uneven_ = lists.empty();
      if (uneven_) return false;
      if (fill_lists(layout, lists, count)) return true;
    }
    return false;
  }

  /// Fills each rank's bins with its items.
  bool fill_lists(pack_layout& layout, std::vector<std::vector<std::uint32_t>>& lists, std::int64_t count) const {
    layout.bins.clear();
    for (std::size_t r = 0; r < lists.size(); ++r) {
      std::sort(lists[r].begin(), lists[r].end(), [&](std::uint32_t a, std::uint32_t b) {
        return sorted_.items[a].size != sorted_.items[b].size ? sorted_.items[a].size > sorted_.items[b].size : a < b;
      });
      const pack_filler<> filler{sorted_, options_.cap, lists[r]};
      std::int64_t bins = count;
      if (!counts_.per_rank) bins = padded_count(options_, static_cast<std::int64_t>(filler.first_fit_bins()));
      if (!options_.dummies && bins > static_cast<std::int64_t>(lists[r].size())) return false;
      const std::size_t first = layout.bins.size();
      layout.bins.resize(first + static_cast<std::size_t>(bins));
      if (!filler.fill(layout, first, static_cast<std::size_t>(bins))) return false;
      for (std::size_t b = first; b < layout.bins.size(); ++b)
        layout.bins[b].rank = static_cast<std::uint32_t>(r);
    }
    return true;
  }

  /// A rank while samples are dealt.
  struct share {
    std::int64_t samples = 0;
    std::int64_t load = 0;
    std::uint32_t rank = 0;

    friend bool operator<(const share& a, const share& b) {  // for a heap whose front has least
      if (a.samples != b.samples) return a.samples > b.samples;
      return a.load != b.load ? a.load > b.load : a.rank > b.rank;
    }
  };

  /// The items of each rank; nothing where the numbers of samples do not come out even.
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> deal_samples(std::int64_t pack_item::* load) const {
    std::vector<std::uint32_t> order(sorted_.size());
    for (std::size_t p = 0; p < order.size(); ++p)
      order[p] = static_cast<std::uint32_t>(p);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const pack_item& x = sorted_.items[a];
      const pack_item& y = sorted_.items[b];
      if (x.samples != y.samples) return x.samples > y.samples;
      return x.*load != y.*load ? x.*load > y.*load : a < b;
    });
    std::vector<share> heap;
    for (std::int64_t r = options_.ranks; r-- > 0;)
      heap.push_back({0, 0, static_cast<std::uint32_t>(r)});
    std::make_heap(heap.begin(), heap.end());
    std::vector<std::vector<std::uint32_t>> lists(heap.size());
    for (const std::uint32_t p : order) {
      std::pop_heap(heap.begin(), heap.end());
      share& least = heap.back();
      least.samples += sorted_.items[p].samples;
      least.load += sorted_.items[p].*load;
      lists[least.rank].push_back(p);
      std::push_heap(heap.begin(), heap.end());
    }
    if (!even_samples(lists)) return {};
    return lists;
  }

  /// Exchanges items between the ranks of most and of fewest samples until they differ by one at most.
  bool even_samples(std::vector<std::vector<std::uint32_t>>& lists) const {
    std::vector<std::int64_t> samples(lists.size());
    for (std::size_t r = 0; r < lists.size(); ++r)
      for (const std::uint32_t p : lists[r])
        samples[r] += sorted_.items[p].samples;
    for (std::size_t moves = 0; moves <= 4 * lists.size(); ++moves) {
      const std::size_t most =
          static_cast<std::size_t>(std::max_element(samples.begin(), samples.end()) - samples.begin());
      const std::size_t least =
          static_cast<std::size_t>(std::min_element(samples.begin(), samples.end()) - samples.begin());
      const std::int64_t gap = samples[most] - samples[least];
      if (gap <= 1) return true;
      const std::optional<std::int64_t> moved = exchange_samples(lists[most], lists[least], gap);
      if (!moved) return false;
      samples[most] -= *moved;
      samples[least] += *moved;
    }
    return false;
  }

  /// The exchange of two items, or of one for none, that moves nearest to half of `gap` samples.
  std::optional<std::int64_t> exchange_samples(std::vector<std::uint32_t>& from, std::vector<std::uint32_t>& to,
                                               std::int64_t gap) const {
    struct choice {
      std::size_t give = 0;
      std::size_t take = 0;
      std::int64_t moved = 0;
      std::int64_t work = 0;
    };
    std::optional<choice> best;
    const auto miss = [&](const choice& c) { return std::max(2 * c.moved - gap, gap - 2 * c.moved); };
    for (std::size_t i = 0; i < from.size(); ++i)
      for (std::size_t j = 0; j <= to.size(); ++j) {
        const pack_item back = j < to.size() ? sorted_.items[to[j]] : pack_item{.samples = 0};
        const pack_item& item = sorted_.items[from[i]];
        const choice c{i, j, item.samples - back.samples, std::max(item.work - back.work, back.work - item.work)};
        if (c.moved <= 0 || c.moved >= gap) continue;
        if (!best || miss(c) < miss(*best) || (miss(c) == miss(*best) && c.work < best->work)) best = c;
      }
    if (!best) return std::nullopt;
    if (best->take < to.size()) {
      std::swap(from[best->give], to[best->take]);
    } else {
      to.push_back(from[best->give]);
      from.erase(from.begin() + static_cast<std::ptrdiff_t>(best->give));
    }
    return best->moved;
  }

  /// All packings of few items; those of more only where none was found.
  void search() {
    if (best_ && (best_->objective <= bound_ || sorted_.size() > few_items)) return;
    complete_ = sorted_.size() <= provable_items;
    if (!complete_) return;
    pack_search<> all{sorted_, options_, search_nodes};
    wide_int least = best_ ? best_->objective : static_cast<wide_int>(1) << 120;
    pack_layout layout;
    const auto look = [&](std::int64_t count) {
      if (!all.better(count, least, layout)) return;
      pack_ranks<> ranks{sorted_, options_, layout, count};
      ranks.gather();
      candidate found{.layout = layout, .count = count, .objective = ranks.objective()};
      found.longest = longest(ranks);
      best_ = std::move(found);
    };
    if (!counts_.per_rank) look(0);
    for (std::int64_t m = counts_.least; counts_.per_rank && m <= counts_.most && !all.cut_short(); m += counts_.step)
      if (bound_between(options_, counts_, sorted_, works_, m, m) < least) look(m);
    complete_ = !all.cut_short();
    if (complete_ && best_) bound_ = best_->objective;
  }

  const pack_sorted& sorted_;
  const pack_options& options_;
  work_bounds works_;
  std::int64_t bins_;
  pack_counts counts_;
  best_count start_;
  wide_int bound_ = 0;
  bool complete_ = false;
  bool uneven_ = false;  ///< samples do not come out even, whatever the counts
  std::optional<candidate> best_;
};

}  // namespace dynapipe::detail
