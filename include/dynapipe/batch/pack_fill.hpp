#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <dynapipe/batch/pack_problem.hpp>

namespace dynapipe::detail {

/// Puts items into bins under a cap, three ways. None breaks the cap; each may find that the items do not fit.
///
/// `level`: largest size first, each into the bin of least key (work, or size) that has room. A bin without room waits
/// until an item comes that is small enough; sizes fall, so a bin waits once at most for each item that it gets, and
/// the choice is exact in O(n log K). The first K items go to K empty bins: no bin stays empty that need not.
/// `first_fit`: largest first, each into the first bin with room (first-fit decreasing, 11/9 of the fewest bins), by a
/// tree of rooms in O(n log K); then the bins of most work are split in two until there are as many as wanted.
template <class Lazy = void>
class pack_filler {
 public:
  /// `positions`: largest first. Bins are numbered from `first` in `layout`.
  pack_filler(const pack_sorted& sorted, std::int64_t cap, std::span<const std::uint32_t> positions)
      : sorted_{sorted}, cap_{cap}, positions_{positions} {}

  /// Fills `count` bins the first way that works: level in work, level in size, first fit.
  bool fill(pack_layout& layout, std::size_t first, std::size_t count) const {
    if (positions_.size() > many && nearly_full(count)) return first_fit(layout, first, count);
    return level(layout, first, count, &pack_bin::work) || level(layout, first, count, &pack_bin::size) ||
           first_fit(layout, first, count);
  }

  bool level(pack_layout& layout, std::size_t first, std::size_t count, std::int64_t pack_bin::* key) const {
    const std::span<pack_bin> bins = cleared(layout, first, count);
    const auto put = [&](std::uint32_t p, std::uint32_t b) {
      bins[b].add(sorted_.items[p]);
      layout.bin_of[p] = static_cast<std::uint32_t>(first) + b;
    };
    const std::size_t alone = std::min(count, positions_.size());
    for (std::size_t b = 0; b < alone; ++b)
      put(positions_[b], static_cast<std::uint32_t>(b));
    tournament open{bins, key};
    std::vector<entry> waiting;
    for (const std::uint32_t p : positions_.subspan(alone)) {
      const pack_item& item = sorted_.items[p];
      while (!waiting.empty() && -waiting.front().key >= item.size) {
        const std::uint32_t b = waiting.front().bin;
        pop(waiting);
        open.set({bins[b].*key, b});
      }
      while (open.any() && bins[open.least()].size > cap_ - item.size) {
        const std::uint32_t b = open.least();
        open.set({int64_limit, b});
        push(waiting, {bins[b].size - cap_, b});
      }
      if (!open.any()) return false;
      const std::uint32_t b = open.least();
      put(p, b);
      open.set({bins[b].*key, b});
    }
    return true;
  }

  bool first_fit(pack_layout& layout, std::size_t first, std::size_t count) const {
    std::vector<std::uint32_t> bin_of(positions_.size());
    const std::size_t used = first_fit(count, bin_of);
    if (used > count) return false;
    std::vector<std::vector<std::uint32_t>> members(used);
    for (std::size_t i = 0; i < positions_.size(); ++i)
      members[bin_of[i]].push_back(positions_[i]);
    split(members, std::min(count, positions_.size()));
    const std::span<pack_bin> bins = cleared(layout, first, count);
    for (std::size_t b = 0; b < members.size(); ++b)
      for (const std::uint32_t p : members[b]) {
        bins[b].add(sorted_.items[p]);
        layout.bin_of[p] = static_cast<std::uint32_t>(first + b);
      }
    return true;
  }

  /// How many bins first-fit decreasing takes. O(n log n).
  [[nodiscard]] std::size_t first_fit_bins() const {
    std::vector<std::uint32_t> bin_of(positions_.size());
    return first_fit(positions_.size(), bin_of);
  }

 private:
  static constexpr std::size_t many = 1 << 16;

  /// Whether less than 1 / 2048 of all room would be left: to level so many items would be in vain.
  [[nodiscard]] bool nearly_full(std::size_t count) const {
    const wide_int room = static_cast<wide_int>(count) * cap_;
    wide_int size = 0;
    for (const std::uint32_t p : positions_)
      size += sorted_.items[p].size;
    return room - size < room / 2048;
  }

  /// An entry of a heap whose front has the least key; equal keys, the lowest bin.
  struct entry {
    std::int64_t key = 0;
    std::uint32_t bin = 0;

    /// Without a branch, which no processor would foresee.
    [[nodiscard]] bool before(const entry& other) const {
      return static_cast<int>(key < other.key) |
             (static_cast<int>(key == other.key) & static_cast<int>(bin < other.bin));
    }
  };

  /// The entry that is before all others, where keys change one at a time; a key of `int64_limit` is out. What a change
  /// reads does not depend on keys, unlike in a heap. O(log n) a change.
  class tournament {
   public:
    tournament(std::span<const pack_bin> bins, std::int64_t pack_bin::* key)
        : leaves_{std::bit_ceil(bins.size())}, nodes_(2 * leaves_, {int64_limit, 0}) {
      for (std::size_t b = 0; b < bins.size(); ++b)
        nodes_[leaves_ + b] = {bins[b].*key, static_cast<std::uint32_t>(b)};
      for (std::size_t at = leaves_; at-- > 1;)
        nodes_[at] = first_of(nodes_[2 * at], nodes_[2 * at + 1]);
    }

    [[nodiscard]] bool any() const { return nodes_[1].key < int64_limit; }
    [[nodiscard]] std::uint32_t least() const { return nodes_[1].bin; }

    void set(entry e) {
      std::size_t at = leaves_ + e.bin;
      nodes_[at] = e;
      for (; at > 1; at /= 2)
        nodes_[at / 2] = e = first_of(e, nodes_[at ^ 1]);
    }

   private:
    [[nodiscard]] static entry first_of(const entry& a, const entry& b) {
      const bool other = b.before(a);
      return {other ? b.key : a.key, other ? b.bin : a.bin};
    }

    std::size_t leaves_;
    std::vector<entry> nodes_;
  };

  static void push(std::vector<entry>& heap, entry e) {
    heap.push_back(e);
    std::push_heap(heap.begin(), heap.end(), [](const entry& a, const entry& b) { return b.before(a); });
  }
  static void pop(std::vector<entry>& heap) {
    const entry last = heap.back();
    heap.pop_back();
    if (!heap.empty()) sink(heap, last);
  }
  /// Replaces the front by `e`.
  static void sink(std::vector<entry>& heap, entry e) {
    std::size_t at = 0;
    for (std::size_t child = 1; child < heap.size(); child = 2 * at + 1) {
      if (child + 1 < heap.size()) child += static_cast<std::size_t>(heap[child + 1].before(heap[child]));
      if (!heap[child].before(e)) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = e;
  }

  static std::span<pack_bin> cleared(pack_layout& layout, std::size_t first, std::size_t count) {
    const std::span<pack_bin> bins = std::span{layout.bins}.subspan(first, count);
    std::fill(bins.begin(), bins.end(), pack_bin{});
    return bins;
  }

  /// Fills `bin_of`; the number of bins used, `count` + 1 where they do not suffice.
  std::size_t first_fit(std::size_t count, std::vector<std::uint32_t>& bin_of) const {
    std::size_t leaves = 1;
    while (leaves < count)
      leaves *= 2;
    std::vector<std::int64_t> room(2 * leaves, -1);
    for (std::size_t i = leaves; i < leaves + count; ++i)
      room[i] = cap_;
    for (std::size_t i = leaves; i-- > 1;)
      room[i] = std::max(room[2 * i], room[2 * i + 1]);
    std::size_t used = 0;
    for (std::size_t i = 0; i < positions_.size(); ++i) {
      const std::int64_t size = sorted_.items[positions_[i]].size;
      if (room[1] < size) return count + 1;
      std::size_t at = 1;
      while (at < leaves)
        at = room[2 * at] >= size ? 2 * at : 2 * at + 1;
      bin_of[i] = static_cast<std::uint32_t>(at - leaves);
      used = std::max(used, at - leaves + 1);
      room[at] -= size;
      for (at /= 2; at > 0; at /= 2)
        room[at] = std::max(room[2 * at], room[2 * at + 1]);
    }
    return used;
  }

  void split(std::vector<std::vector<std::uint32_t>>& members, std::size_t count) const {
    std::vector<entry> heap;
    const auto enter = [&](std::size_t b) {
      if (members[b].size() < 2) return;
      std::int64_t work = 0;
      for (const std::uint32_t p : members[b])
        work += sorted_.items[p].work;
      push(heap, {-work, static_cast<std::uint32_t>(b)});
    };
    for (std::size_t b = 0; b < members.size(); ++b)
      enter(b);
    while (members.size() < count && !heap.empty()) {
      const std::uint32_t b = heap.front().bin;
      pop(heap);
      std::vector<std::uint32_t> half[2];
      std::int64_t work[2] = {-1, -1};
      std::sort(members[b].begin(), members[b].end());
      for (const std::uint32_t p : members[b]) {
        const std::size_t side = work[1] < work[0] ? 1 : 0;
        work[side] = std::max<std::int64_t>(work[side], 0) + sorted_.items[p].work;
        half[side].push_back(p);
      }
      members[b].swap(half[0]);
      members.push_back(std::move(half[1]));
      enter(b);
      enter(members.size() - 1);
    }
  }

  const pack_sorted& sorted_;
  std::int64_t cap_;
  std::span<const std::uint32_t> positions_;
};

}  // namespace dynapipe::detail
