#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/batch/constraint.hpp>
#include <dynapipe/batch/pack.hpp>

namespace dynapipe {

/// A packing whose micro-batches hold items of one class each. A rank's micro-batches are in steps: by class, those of
/// a class slowest first, its dummies last.
struct classed_pack_result {
  pack_result packed;
  std::vector<std::int64_t>
      class_of;  ///< of each step, the m-th micro-batches of all ranks; 0 where there are no items
};

namespace detail {

/// The packings of all classes, put together.
template <class Lazy = void>
class class_joiner {
 public:
  explicit class_joiner(const pack_options& options)
      : options_{options}, ranks_(static_cast<std::size_t>(options.ranks)) {}

  /// Takes a packing of the items `ids`. Its heaviest rank goes where least is so far: of samples where these have to
  /// be equal, then of time.
  void add(std::int64_t of_class, const pack_result& packed, std::span<const pack_item> items,
           std::span<const std::size_t> ids) {
    std::vector<rank_block> blocks(ranks_.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      rank_block& block = blocks[r];
      block.of_class = of_class;
      for (std::size_t m = 0; m < packed.micro_batches(r); ++m) {
        std::vector<std::size_t>& batch = block.batches.emplace_back();
        std::int64_t time = options_.fixed;
        for (const std::size_t i : packed.of(r, m)) {
          batch.push_back(ids[i]);
          time += items[ids[i]].work;
          block.load.samples += items[ids[i]].samples;
        }
        block.load.time += time;
        block.times.push_back(time);
      }
    }
    const std::vector<std::size_t> lightest = by_load([&](std::size_t r) { return ranks_[r].load; });
    std::vector<std::size_t> heaviest = by_load([&](std::size_t r) { return blocks[r].load; });
    std::reverse(heaviest.begin(), heaviest.end());
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      rank_load& rank = ranks_[lightest[i]];
      rank_block& block = blocks[heaviest[i]];
      rank.load.samples += block.load.samples;
      rank.load.time += block.load.time;
      rank.blocks.push_back(std::move(block));
    }
  }

  [[nodiscard]] classed_pack_result result() {
    classed_pack_result made;
    pack_result& p = made.packed;
    p.rank_begin.push_back(0);
    p.batch_begin.push_back(0);
    std::vector<std::int64_t> steps;
    wide_int most = 0;
    std::int64_t slowest_of_all = 0;
    for (rank_load& rank : ranks_) {
      std::sort(rank.blocks.begin(), rank.blocks.end(),
                [](const rank_block& a, const rank_block& b) { return a.of_class < b.of_class; });
      std::int64_t slowest = 0;
      std::size_t step = 0;
      for (const rank_block& block : rank.blocks)
        for (std::size_t m = 0; m < block.batches.size(); ++m, ++step) {
          p.items.insert(p.items.end(), block.batches[m].begin(), block.batches[m].end());
          p.batch_begin.push_back(p.items.size());
          slowest = std::max(slowest, block.times[m]);
          if (step == steps.size()) {
            steps.push_back(0);
            made.class_of.push_back(block.of_class);
          }
          steps[step] = std::max(steps[step], block.times[m]);
        }
      p.rank_begin.push_back(p.batch_begin.size() - 1);
      p.longest = std::max(p.longest, rank.load.time);
      p.total += rank.load.time;
      most = std::max(most, value(rank.load.time, slowest));
      slowest_of_all = std::max(slowest_of_all, slowest);
    }
    const wide_int in_steps = std::accumulate(steps.begin(), steps.end(), wide_int{0});
    p.scaled_objective = options_.lock_step ? value(in_steps, slowest_of_all) : most;
    return made;
  }

 private:
  struct load_of {
    std::int64_t samples = 0;
    std::int64_t time = 0;
  };
  struct rank_block {
    std::int64_t of_class = 0;
    std::vector<std::vector<std::size_t>> batches;
    std::vector<std::int64_t> times;
    load_of load;
  };
  struct rank_load {
    std::vector<rank_block> blocks;
    load_of load;
  };

  [[nodiscard]] wide_int value(wide_int sum, std::int64_t slowest) const {
    return options_.stages_per_device * sum + (options_.devices - 1) * static_cast<wide_int>(slowest);
  }

  /// Ranks, the lightest first.
  template <class Load>
  [[nodiscard]] std::vector<std::size_t> by_load(Load&& load) const {
    std::vector<std::size_t> order(ranks_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const load_of& x = load(a);
      const load_of& y = load(b);
      if (options_.equal_samples && x.samples != y.samples) return x.samples < y.samples;
      return x.time != y.time ? x.time < y.time : a < b;
    });
    return order;
  }

  pack_options options_;
  std::vector<rank_load> ranks_;
};

}  // namespace detail

/// `pack` for items of several classes that no micro-batch may mix, and that all ranks have to meet at the same step:
/// samples with and without images, say, where a rank that runs a vision tower waits for parameters that the others
/// must gather with it. Micro-batches hold one class each, and the m-th of all ranks are of the same class.
///
/// Problem: that of `pack`, and the above. It makes counts equal, class by class, whatever `equal_counts` is;
/// `count_multiple`, `least_count` and `count` hold for each class by itself. A second dimension of cost (image tokens)
/// is the caller's: an item's size and work are of all that it holds.
///
/// Method: each class is packed by itself. Put together, the class of most work first, the heaviest rank of each class
/// goes to the rank that has least so far; with `equal_samples` that has fewest samples, which keeps them within one.
/// (prime-rl packs by modality as well; a rank there gets a copy of some micro-batch where one is missing.)
///
/// Guarantee: the cap, the classes, and all that is asked for hold; `scaled_bound` is that of `pack` without classes.
/// Deterministic as `pack` is. Complexity: that of `pack` for each class.
///
/// @throws error as `pack` does. @throws unsatisfiable where `pack` refuses a class, naming it: one that has fewer
/// items than there are ranks takes `dummies`.
template <class Lazy = void>
[[nodiscard]] classed_pack_result pack_classes(std::span<const pack_item> items, std::span<const std::int64_t> class_of,
                                               const pack_options& options) {
  DYNAPIPE_ASSERT(items.size() == class_of.size());
  detail::require_sound(options);
  pack_options loose = options;
  loose.count = 0;
  loose.least_count = 1;
  loose.equal_counts = true;
  const detail::pack_sorted sorted = detail::sort_items(items, loose);
  detail::pack_refusal{items, sorted, options}.of_one();

  struct part {
    std::int64_t of_class = 0;
    wide_int work = 0;
    std::vector<std::size_t> ids;
  };
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return class_of[a] != class_of[b] ? class_of[a] < class_of[b] : a < b;
  });
  std::vector<part> parts;
  for (const std::size_t i : order) {
    if (parts.empty() || parts.back().of_class != class_of[i]) parts.push_back({.of_class = class_of[i], .ids = {}});
    parts.back().work += items[i].work;
    parts.back().ids.push_back(i);
  }
  std::sort(parts.begin(), parts.end(),
            [](const part& a, const part& b) { return a.work != b.work ? a.work > b.work : a.of_class < b.of_class; });
  const wide_int batches =
      static_cast<wide_int>(items.size()) +
      static_cast<wide_int>(parts.size()) * options.ranks *
          (std::max({options.count, options.least_count, std::int64_t{1}}) + options.count_multiple);
  if (sorted.work + batches * options.fixed > detail::pack_limit)
    throw error{"the micro-batches' times may add up to more than 2^62: give them in a larger unit"};
  pack_options each = options;
  each.equal_counts = true;
  if (parts.empty()) {
    pack_result none = pack(items, each);
    const std::size_t steps = none.micro_batches(0);
    return {std::move(none), std::vector<std::int64_t>(steps, 0)};
  }
  detail::class_joiner<> all{options};
  std::vector<pack_item> own;
  for (const part& of : parts) {
    own.clear();
    for (const std::size_t i : of.ids)
      own.push_back(items[i]);
    try {
      all.add(of.of_class, pack(std::span<const pack_item>{own}, each), items, of.ids);
    } catch (const unsatisfiable& why) {
      throw unsatisfiable{"class " + std::to_string(of.of_class) + ": " + why.what(), why.relax()};
    }
  }
  classed_pack_result result = all.result();
  const detail::pack_counts counts = detail::counts_of(loose, sorted.size(), detail::least_bins(sorted, options.cap));
  result.packed.scaled_bound =
      std::min(result.packed.scaled_objective, detail::count_of_least_bound(loose, counts, sorted).bound);
  return result;
}

}  // namespace dynapipe
