#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <dynapipe/batch/pack_problem.hpp>

namespace dynapipe::detail {

/// How many micro-batches of `cap` the sizes force at least: the bound L2 of Martello and Toth (Discrete Applied
/// Mathematics 28, 1990). For every a <= cap / 2: items above cap - a share with none of at least a; those between
/// cap / 2 and cap - a do not share with each other; the rest of at least a goes where the latter leave room, or needs
/// bins of its own. O(n), sizes must be at most `cap`.
template <class Lazy = void>
std::int64_t least_bins(const pack_sorted& sorted, std::int64_t cap) {
  const std::size_t n = sorted.size();
  const auto size = [&](std::size_t i) { return sorted.items[sorted.by_size[i]].size; };
  std::size_t half = 0;
  std::int64_t large = 0;
  while (half < n && size(half) > cap - size(half))
    large += size(half++);
  std::int64_t most = static_cast<std::int64_t>(half);
  std::size_t alone = half;  // items above cap - a
  std::int64_t of_alone = large;
  std::int64_t small = 0;
  for (std::size_t i = half; i < n && size(i) > 0; ++i) {
    small += size(i);
    while (alone > 0 && size(alone - 1) <= cap - size(i))
      of_alone -= size(--alone);
    const wide_int room = static_cast<wide_int>(half - alone) * cap - (large - of_alone);
    if (small > room) most = std::max(most, static_cast<std::int64_t>(half) + saturate((small - room + cap - 1) / cap));
  }
  return most;
}

/// Numbers of micro-batches that may be tried: per rank where all ranks have the same, else of all ranks.
struct pack_counts {
  bool per_rank = true;
  std::int64_t least = 1;
  std::int64_t most = 1;  ///< below `least` where nothing can be packed
  std::int64_t step = 1;
};

/// The counts that the number of items and their sizes leave, given a bound on the bins that the sizes force. O(1).
inline pack_counts counts_of(const pack_options& o, std::size_t items, std::int64_t bins) {
  const std::int64_t n = static_cast<std::int64_t>(items);
  const std::int64_t base = padded_count(o, o.count);
  pack_counts c{.per_rank = o.equal_counts || o.lock_step || o.count > 0, .step = o.count_multiple};
  if (c.per_rank) {
    c.least = std::max(base, round_up(ceil_div(bins, o.ranks), o.count_multiple));
    c.most = o.dummies ? std::max(base, round_up(n, o.count_multiple))
                       : n / saturating_mul(o.ranks, o.count_multiple) * o.count_multiple;
    if (o.count > 0) c.most = std::min(c.most, base);
  } else {
    const std::int64_t every = saturating_mul(o.ranks, base);
    c.least = std::max(every, round_up(bins, o.count_multiple));
    c.most = o.dummies ? saturating_add(every, round_up(n, o.count_multiple)) : n / o.count_multiple * o.count_multiple;
  }
  return c;
}

/// What a bound needs to know of the works.
struct work_bounds {
  std::int64_t largest = 0;
  std::int64_t shared = 0;  ///< some rank has at least this: of the q * ranks + 1 largest, it has q + 1

  work_bounds(const pack_sorted& sorted, std::int64_t ranks) {
    if (sorted.size() == 0) return;
    largest = shared = sorted.items.front().work;
    const std::size_t r = static_cast<std::size_t>(ranks);
    for (std::size_t q = 1; q <= 64 && q <= (sorted.size() - 1) / r; ++q) {
      std::int64_t sum = 0;
      for (std::size_t i = q * r - q; i <= q * r; ++i)
        sum += sorted.items[i].work;
      shared = std::max(shared, sum);
    }
  }
};

/// A lower bound on the scaled objective of packings with at least `least` and at most `most` micro-batches (per rank,
/// or of all ranks, as `counts` says). Of V, S the stages of a device, D the devices, F the fixed time, W the work, R
/// the ranks, M the micro-batches of a rank, L the slowest micro-batch's work:
///
/// - the rank with most work w >= W / R takes S (F M + w) + (D - 1) (F + w / M) at least;
/// - the rank with the largest item likewise, with that item as work and slowest;
/// - the rank that has L leaves the rest to the others, whose slowest are at least their means:
///   W <= (V' - (D - 1) L) / S + (R - 1) V' / (S + (D - 1) / M), where V' is V less all fixed times;
/// - where counts differ, R V >= S (F K + W) + (D - 1) (R F + L), K micro-batches in all. O(1).
inline wide_int bound_between(const pack_options& o, const pack_counts& counts, const pack_sorted& sorted,
                              const work_bounds& works, std::int64_t least, std::int64_t most) {
  const auto up = [](wide_int a, wide_int b) { return (a + b - 1) / b; };
  const wide_int bins = counts.per_rank ? static_cast<wide_int>(most) * o.ranks : static_cast<wide_int>(most);
  const wide_int slowest = std::max<wide_int>(works.largest, up(sorted.work, bins));
  const wide_int fill = o.devices - 1;
  if (!counts.per_rank) {
    const wide_int all = o.stages_per_device * (static_cast<wide_int>(o.fixed) * least + sorted.work) +
                         fill * (static_cast<wide_int>(o.ranks) * o.fixed + slowest);
    const std::int64_t few = padded_count(o, 0);
    return std::max(
        {up(all, o.ranks), rank_value(o, few, works.largest, works.largest), rank_value(o, few, works.shared, 0)});
  }
  const wide_int rank = std::max<wide_int>(works.shared, up(sorted.work, o.ranks));
  const wide_int stages = static_cast<wide_int>(o.stages_per_device) * most;
  const wide_int spread = up((o.stages_per_device * sorted.work + fill * slowest) * (stages + fill),
                             stages + fill + (o.ranks - 1) * stages);
  return std::max({rank_value(o, least, rank, up(rank, most)), rank_value(o, least, works.largest, works.largest),
                   rank_value(o, least, 0, 0) + spread});
}

/// The count whose bound is least (of equal ones the smallest), and a bound for all counts.
struct best_count {
  std::int64_t count = 0;
  wide_int bound = 0;
};

/// O(min(counts, 4096)).
inline best_count count_of_least_bound(const pack_options& o, const pack_counts& counts, const pack_sorted& sorted) {
  const work_bounds works{sorted, o.ranks};
  const std::int64_t last = std::max(counts.least, counts.most);
  const auto at = [&](std::int64_t m, std::int64_t to) { return bound_between(o, counts, sorted, works, m, to); };
  best_count best{counts.least, at(counts.least, counts.least)};
  if (o.devices == 1) return best;
  std::int64_t m = counts.least + counts.step;
  for (int tries = 0; m <= last; m += counts.step) {
    // From m on no count has a lower bound than this.
    const wide_int rest = at(m, last);
    if (rest >= best.bound) break;
    if (++tries == 4096) {
      best.bound = rest;
      break;
    }
    const wide_int here = at(m, m);
    if (here < best.bound) best = {m, here};
  }
  return best;
}

}  // namespace dynapipe::detail
