#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>

namespace dynapipe {

/// What is packed: one sample, or several that stay together.
struct pack_item {
  std::int64_t size = 0;     ///< what the cap counts: aligned tokens, or bytes; 0 is fine
  std::int64_t work = 0;     ///< predicted time, which adds up in a micro-batch: nanoseconds, say
  std::int32_t samples = 1;  ///< that it stands for

  friend constexpr bool operator==(const pack_item&, const pack_item&) = default;
};

/// What a packing keeps, and what its micro-batches take.
struct pack_options {
  std::int64_t ranks = 1;              ///< data-parallel ranks, not devices in all
  std::int64_t cap = 0;                ///< the largest size of a micro-batch
  std::int64_t fixed = 0;              ///< time of a micro-batch beyond its items' work, also of an empty one
  std::int64_t devices = 1;            ///< pipeline devices of one rank
  std::int64_t stages_per_device = 1;  ///< of the pipeline
  bool equal_counts = true;            ///< every rank has the same number of micro-batches
  std::int64_t count_multiple = 1;     ///< every rank's number of micro-batches is a multiple of it
  std::int64_t least_count = 1;        ///< every rank has at least so many micro-batches
  std::int64_t count = 0;              ///< every rank has exactly so many; 0: what the objective asks for
  bool equal_samples = false;          ///< ranks' numbers of samples differ by one at most
  bool lock_step = false;              ///< the m-th micro-batches of all ranks run at once; implies equal counts
  bool dummies = false;                ///< a micro-batch may be empty where items do not suffice

  friend constexpr bool operator==(const pack_options&, const pack_options&) = default;
};

/// Items in micro-batches, micro-batches on ranks. Micro-batch m of all has items [batch_begin[m], batch_begin[m + 1])
/// of `items`; rank r has micro-batches [rank_begin[r], rank_begin[r + 1]), slowest first.
struct pack_result {
  std::vector<std::size_t> rank_begin;
  std::vector<std::size_t> batch_begin;
  std::vector<std::size_t> items;  ///< positions in the input, ascending within a micro-batch
  std::int64_t longest = 0;        ///< largest sum of a rank's micro-batches' times
  wide_int total = 0;              ///< sum of all micro-batches' times
  wide_int scaled_objective = 0;   ///< `stages_per_device` times the objective, which is an integer
  wide_int scaled_bound = 0;       ///< no packing has a scaled objective below it

  [[nodiscard]] std::size_t ranks() const { return rank_begin.size() - 1; }
  [[nodiscard]] std::size_t micro_batches() const { return batch_begin.size() - 1; }
  [[nodiscard]] std::size_t micro_batches(std::size_t rank) const { return rank_begin[rank + 1] - rank_begin[rank]; }

  /// The items of the m-th micro-batch of all; none where it is a dummy.
  [[nodiscard]] std::span<const std::size_t> of(std::size_t m) const {
    return std::span{items}.subspan(batch_begin[m], batch_begin[m + 1] - batch_begin[m]);
  }
  /// The items of the m-th micro-batch of a rank.
  [[nodiscard]] std::span<const std::size_t> of(std::size_t rank, std::size_t m) const {
    return of(rank_begin[rank] + m);
  }
  [[nodiscard]] bool is_dummy(std::size_t m) const { return of(m).empty(); }

  /// The mean of the ranks' times.
  [[nodiscard]] double mean() const { return static_cast<double>(total) / static_cast<double>(ranks()); }
  /// The largest rank time over the mean; 1 where nothing takes time.
  [[nodiscard]] double max_over_mean() const { return total == 0 ? 1.0 : static_cast<double>(longest) / mean(); }
  /// How far the objective may be above the optimum: 0.01 is 1 %.
  [[nodiscard]] double gap() const {
    if (scaled_objective == scaled_bound) return 0.0;
    return static_cast<double>(scaled_objective - scaled_bound) /
           static_cast<double>(std::max<wide_int>(1, scaled_bound));
  }
};

namespace detail {

/// Sums of sizes and of times stay below it.
inline constexpr std::int64_t pack_limit = std::int64_t{1} << 62;

/// Items in an order that does not depend on that of the input: most work first, then largest, then most samples, then
/// by id. Below, an item is its position in this order.
struct pack_sorted {
  std::vector<pack_item> items;
  std::vector<std::uint32_t> ids;      ///< where each was in the input
  std::vector<std::uint32_t> by_size;  ///< largest first, then by position
  wide_int work = 0;
  std::int64_t samples = 0;

  [[nodiscard]] std::size_t size() const { return items.size(); }
};

/// A place in an order: items with less `key` come first.
struct pack_key {
  std::uint64_t key = 0;
  std::uint32_t id = 0;
};

/// Sorts by key, keeping the order of equal keys; `most` is the largest. Digit after digit, for comparisons that no
/// processor foresees take longer: O(n) for each of the digits, of 11 bits, that `most` has.
template <class Lazy = void>
void sort_by_digits(std::vector<pack_key>& order, std::uint64_t most) {
  constexpr int bits = 11;
  constexpr std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  std::vector<pack_key> sorted(order.size());
  std::vector<std::uint32_t> next;
  for (int shift = 0; shift < 64 && (most >> shift) != 0; shift += bits) {
    next.assign(mask + 1, 0);
    for (const pack_key& k : order)
      ++next[(k.key >> shift) & mask];
    std::uint32_t begin = 0;
    for (std::uint32_t& n : next)
      begin += std::exchange(n, begin);
    for (const pack_key& k : order)
      sorted[next[(k.key >> shift) & mask]++] = k;
    order.swap(sorted);
  }
}

/// O(n log n). @throws error where an item or a sum is out of range.
template <class Lazy = void>
pack_sorted sort_items(std::span<const pack_item> items, const pack_options& options) {
  wide_int size = 0;
  std::int64_t most = 0;
  pack_sorted result;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const pack_item& item = items[i];
    if (item.size < 0 || item.work < 0 || item.samples < 1)
      throw error{"item " + std::to_string(i) + ": size " + std::to_string(item.size) + " and work " +
                  std::to_string(item.work) + " must not be negative, and its samples at least 1, they are " +
                  std::to_string(item.samples)};
    size += item.size;
    most = std::max(most, item.work);
    result.work += item.work;
    result.samples += item.samples;
  }
  if (size > pack_limit) throw error{"the items' sizes add up to more than 2^62"};
  const wide_int batches = std::max<wide_int>(static_cast<wide_int>(items.size()),
                                              static_cast<wide_int>(options.ranks) *
                                                  std::max({options.count, options.least_count, std::int64_t{1}})) +
                           static_cast<wide_int>(options.count_multiple) * options.ranks;
  if (result.work + batches * options.fixed > pack_limit)
    throw error{"the micro-batches' times may add up to more than 2^62: give them in a larger unit"};
  std::vector<pack_key> order(items.size());
  for (std::size_t i = 0; i < items.size(); ++i)
    order[i] = {static_cast<std::uint64_t>(most - items[i].work), static_cast<std::uint32_t>(i)};
  const auto before = [&](const pack_key& a, const pack_key& b) {
    if (a.key != b.key) return a.key < b.key;
    const pack_item& x = items[a.id];
    const pack_item& y = items[b.id];
    if (x.size != y.size) return x.size > y.size;
    return x.samples != y.samples ? x.samples > y.samples : a.id < b.id;
  };
  constexpr std::size_t few = 1024;
  if (order.size() > few) sort_by_digits(order, static_cast<std::uint64_t>(most));
  for (auto from = order.begin(); from != order.end();) {
    const auto to = order.size() > few
                        ? std::find_if(from, order.end(), [&](const pack_key& k) { return k.key != from->key; })
                        : order.end();
    if (!std::is_sorted(from, to, before)) std::sort(from, to, before);
    from = to;
  }
  result.items.resize(order.size());
  result.ids.resize(order.size());
  result.by_size.resize(order.size());
  std::iota(result.by_size.begin(), result.by_size.end(), std::uint32_t{0});
  bool falls = true;
  for (std::size_t i = 0; i < order.size(); ++i) {
    result.items[i] = items[order[i].id];
    result.ids[i] = order[i].id;
    falls = falls && (i == 0 || result.items[i - 1].size >= result.items[i].size);
  }
  if (!falls)
    std::sort(result.by_size.begin(), result.by_size.end(), [&](std::uint32_t a, std::uint32_t b) {
      return result.items[a].size != result.items[b].size ? result.items[a].size > result.items[b].size : a < b;
    });
  return result;
}

/// `stages_per_device` times what a rank takes: `work` in `count` micro-batches, the slowest with work `slowest`.
[[nodiscard]] inline wide_int rank_value(const pack_options& o, std::int64_t count, wide_int work, wide_int slowest) {
  return o.stages_per_device * (static_cast<wide_int>(o.fixed) * count + work) + (o.devices - 1) * (o.fixed + slowest);
}

/// The number of micro-batches that a rank needs for `used` that are not empty.
[[nodiscard]] inline std::int64_t padded_count(const pack_options& o, std::int64_t used) {
  return round_up(std::max({used, o.least_count, std::int64_t{1}}), o.count_multiple);
}

/// One micro-batch while packing.
struct pack_bin {
  std::int64_t size = 0;
  std::int64_t work = 0;
  std::int64_t samples = 0;
  std::uint32_t items = 0;
  std::uint32_t rank = 0;

  void add(const pack_item& item) {
    size += item.size;
    work += item.work;
    samples += item.samples;
    ++items;
  }
  void remove(const pack_item& item) {
    size -= item.size;
    work -= item.work;
    samples -= item.samples;
    --items;
  }
};

/// A packing: the bin of each item, and the bins with their ranks.
struct pack_layout {
  std::vector<std::uint32_t> bin_of;
  std::vector<pack_bin> bins;
};

}  // namespace detail

}  // namespace dynapipe
