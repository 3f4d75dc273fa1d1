#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <dynapipe/batch/pack_problem.hpp>

namespace dynapipe::detail {

/// Deals items to ranks so that those with much work are together.
///
/// Where a pipeline waits for the slowest micro-batch, a long item costs its rank (devices - 1) / stages_per_device
/// times its own time besides: ranks that share the long items all pay, ranks without pay little, and take more of the
/// rest. For a limit V on the scaled rank value, each rank but the last takes the largest items left while its work
/// leaves room for its fill under V, then the largest that still fit, and the least items that its `count`
/// micro-batches lack; the last takes the rest. V is halved between a lower bound and a value to beat, until the last
/// rank keeps it too but for 1 / 1024.
///
/// Every rank has `count` items at least. O(n) for each V, 12 of them at most.
template <class Lazy = void>
class pack_together {
 public:
  using lists = std::vector<std::vector<std::uint32_t>>;

  pack_together(const pack_sorted& sorted, const pack_options& options, std::int64_t count)
      : sorted_{sorted}, options_{options}, count_{count} {}

  /// The items of each rank; nothing where no V below `most` works.
  [[nodiscard]] std::optional<lists> deal(wide_int least, wide_int most) const {
    std::optional<lists> best;
    if (static_cast<wide_int>(count_) * options_.ranks > static_cast<wide_int>(sorted_.size())) return best;
    for (int halvings = 0; halvings < 12 && most - least > most / 1024; ++halvings) {
      const wide_int middle = least + (most - least) / 2;
      if (std::optional<lists> found = deal_below(middle)) {
        best = std::move(found);
        most = middle;
      } else {
        least = middle;
      }
    }
    return best;
  }

 private:
  [[nodiscard]] wide_int room_below(wide_int limit, std::int64_t slowest) const {
    const wide_int fill = options_.devices - 1;
    const wide_int stages = options_.stages_per_device;
    const wide_int free = limit - rank_value(options_, count_, 0, 0);
    return std::min((free - fill * slowest) / stages, free * count_ / (stages * count_ + fill));
  }

  [[nodiscard]] std::optional<lists> deal_below(wide_int limit) const {
    const std::size_t n = sorted_.size();
    const std::size_t ranks = static_cast<std::size_t>(options_.ranks);
    const std::size_t needed = static_cast<std::size_t>(count_);
    const auto work = [&](std::size_t p) { return sorted_.items[p].work; };
    std::vector<bool> taken(n);
    lists result(ranks);
    std::size_t front = 0;
    std::size_t back = n;
    wide_int left = sorted_.work;
    std::size_t items_left = n;
    for (std::size_t r = 0; r + 1 < ranks; ++r) {
      while (taken[front])
        ++front;
      wide_int room = room_below(limit, work(front));
      // The least items left stand by for micro-batches that would have none; each item taken sends one of them back.
      std::vector<std::size_t> reserve;
      for (std::size_t p = back; reserve.size() < needed;)
        if (!taken[--p]) {
          taken[p] = true;
          room -= work(p);
          reserve.push_back(p);
        }
      const std::size_t spare = items_left - needed * (ranks - r - 1);
      std::vector<std::uint32_t>& mine = result[r];
      for (std::size_t p = front; p < n && mine.size() < spare; ++p) {
        const wide_int sent_back = reserve.empty() ? 0 : work(reserve.back());
        if (work(p) > room + sent_back)
          p = static_cast<std::size_t>(
              std::partition_point(sorted_.items.begin() + static_cast<std::ptrdiff_t>(p), sorted_.items.end(),
                                   [&](const pack_item& item) { return item.work > room + sent_back; }) -
              sorted_.items.begin());
        if (p == n || taken[p]) continue;
        taken[p] = true;
        room += sent_back - work(p);
        mine.push_back(static_cast<std::uint32_t>(p));
        if (reserve.empty()) continue;
        taken[reserve.back()] = false;
        reserve.pop_back();
      }
      if (room < 0) return std::nullopt;
      for (const std::size_t p : reserve)
        mine.push_back(static_cast<std::uint32_t>(p));
      for (const std::uint32_t p : mine)
        left -= work(p);
      items_left -= mine.size();
      while (back > 0 && taken[back - 1])
        --back;
    }
    for (std::size_t p = front; p < n; ++p)
      if (!taken[p]) result.back().push_back(static_cast<std::uint32_t>(p));
    if (left > room_below(limit, result.back().empty() ? 0 : work(result.back().front()))) return std::nullopt;
    return result;
  }

  const pack_sorted& sorted_;
  const pack_options& options_;
  std::int64_t count_;
};

}  // namespace dynapipe::detail
