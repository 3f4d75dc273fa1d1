#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <dynapipe/batch/pack_bound.hpp>
#include <dynapipe/batch/pack_problem.hpp>

namespace dynapipe::detail {

/// Searches all packings of a few items, for the best one or for a proof that there is none.
///
/// Method: depth first, largest item first, into each bin of each rank and into one new bin; of ranks without items
/// only the first, of bins alike in a rank only one. A branch ends where a rank takes as long as the best packing
/// known, where the bins that are still empty outnumber the items left, or where a rank has too many samples.
/// Exponential; after `nodes` placements it gives up.
template <class Lazy = void>
class pack_search {
 public:
  pack_search(const pack_sorted& sorted, const pack_options& options, std::int64_t nodes)
      : sorted_{sorted}, options_{options}, nodes_{nodes}, bin_of_(sorted.size()) {}

  /// Looks for a packing with `count` micro-batches on every rank (0: counts may differ) below `best`, which it lowers.
  /// True where one was found; then `layout` has it. `cut_short` tells whether the search was given up.
  bool better(std::int64_t count, wide_int& best, pack_layout& layout) {
    count_ = count;
    best_ = &best;
    layout_ = &layout;
    found_ = false;
    ranks_.assign(static_cast<std::size_t>(options_.ranks), {});
    place(0);
    return found_;
  }

  [[nodiscard]] bool cut_short() const { return nodes_ <= 0; }

 private:
  struct rank {
    std::vector<pack_bin> bins;
    std::int64_t work = 0;
    std::int64_t samples = 0;
  };

  [[nodiscard]] std::int64_t needed(const rank& r) const {
    return count_ > 0 ? count_ : padded_count(options_, static_cast<std::int64_t>(r.bins.size()));
  }

  [[nodiscard]] wide_int value() const {
    wide_int most = 0;
    std::vector<std::int64_t> steps;
    std::vector<std::int64_t> own;
    std::int64_t slowest_of_all = 0;
    for (const rank& r : ranks_) {
      own.clear();
      for (const pack_bin& b : r.bins)
        own.push_back(b.work);
      std::sort(own.begin(), own.end(), [](std::int64_t a, std::int64_t b) { return a > b; });
      const std::int64_t slowest = own.empty() ? 0 : own.front();
      most = std::max(most, rank_value(options_, needed(r), r.work, slowest));
      slowest_of_all = std::max(slowest_of_all, slowest);
      steps.resize(std::max(steps.size(), own.size()));
      for (std::size_t m = 0; m < own.size(); ++m)
        steps[m] = std::max(steps[m], own[m]);
    }
    if (!options_.lock_step) return most;
    wide_int sum = 0;
    for (const std::int64_t step : steps)
      sum += step;
    return rank_value(options_, count_, sum, slowest_of_all);
  }

  /// Whether the items from the `at`-th on can still fill what is asked for.
  [[nodiscard]] bool can_finish(std::size_t at) const {
    const std::int64_t left = static_cast<std::int64_t>(sorted_.size() - at);
    std::int64_t missing = 0;
    for (const rank& r : ranks_) {
      missing += needed(r) - static_cast<std::int64_t>(r.bins.size());
      if (options_.equal_samples && r.samples > ceil_div(sorted_.samples, options_.ranks)) return false;
      if (options_.equal_samples && left == 0 && r.samples < sorted_.samples / options_.ranks) return false;
    }
    return options_.dummies || missing <= left;
  }

  void place(std::size_t at) {
    if (!can_finish(at) || value() >= *best_) return;
    if (at == sorted_.size()) {
      keep();
      return;
    }
    const std::uint32_t p = sorted_.by_size[at];
    const pack_item& item = sorted_.items[p];
    for (std::size_t r = 0; r < ranks_.size() && nodes_ > 0; ++r) {
      rank& here = ranks_[r];
      here.work += item.work;
      here.samples += item.samples;
      const std::size_t used = here.bins.size();
      for (std::size_t b = 0; b < used && nodes_ > 0; ++b) {
        if (here.bins[b].size > options_.cap - item.size || alike_before(here, b)) continue;
        --nodes_;
        here.bins[b].add(item);
        bin_of_[p] = {r, b};
        place(at + 1);
        here.bins[b].remove(item);
      }
      if (count_ == 0 || static_cast<std::int64_t>(used) < count_) {
        --nodes_;
        here.bins.emplace_back();
        here.bins.back().add(item);
        bin_of_[p] = {r, used};
        place(at + 1);
        here.bins.pop_back();
      }
      here.work -= item.work;
      here.samples -= item.samples;
      if (used == 0) break;
    }
  }

  static bool alike_before(const rank& r, std::size_t b) {
    return std::any_of(r.bins.begin(), r.bins.begin() + static_cast<std::ptrdiff_t>(b), [&](const pack_bin& other) {
      return other.size == r.bins[b].size && other.work == r.bins[b].work;
    });
  }

  void keep() {
    *best_ = value();
    found_ = true;
    layout_->bins.clear();
    layout_->bin_of.assign(sorted_.size(), 0);
    std::vector<std::size_t> first;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      first.push_back(layout_->bins.size());
      for (pack_bin bin : ranks_[r].bins) {
        bin.rank = static_cast<std::uint32_t>(r);
        layout_->bins.push_back(bin);
      }
    }
    for (std::size_t p = 0; p < sorted_.size(); ++p)
      layout_->bin_of[p] = static_cast<std::uint32_t>(first[bin_of_[p].rank] + bin_of_[p].bin);
  }

  struct where {
    std::size_t rank = 0;
    std::size_t bin = 0;
  };

  const pack_sorted& sorted_;
  const pack_options& options_;
  std::int64_t nodes_;
  std::vector<where> bin_of_;
  std::vector<rank> ranks_;
  std::int64_t count_ = 0;
  wide_int* best_ = nullptr;
  pack_layout* layout_ = nullptr;
  bool found_ = false;
};

}  // namespace dynapipe::detail
