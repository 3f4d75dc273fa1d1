#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <dynapipe/batch/row_times.hpp>
#include <dynapipe/batch/shape_map.hpp>
#include <dynapipe/batch/suffix_sums.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe::detail {

/// The dynamic program for any order, and any times that do not fall when rows or a length grow.
///
/// Times are kept by padded lengths. A sample's micro-batches take on longer lengths as they grow: its list says from
/// how many rows to how many they have which. Samples sorted by their one length have one such entry each.
///
/// O(samples x window) time for each limit, window being the samples that fit a micro-batch. Memory: 8 bytes for each
/// number of rows of each pair of lengths, 12 for each entry.
template <class Lazy = void>
class window_kernel {
 public:
  /// `time` as in `partition`; where it is `convex` in rows it is asked for few of its values. Micro-batches of two
  /// samples or more are left out where they take longer than `useful`. None where a sample alone does not fit.
  template <class ShapeTime>
  static std::optional<window_kernel> make(std::span<const shape> alone, ShapeTime& time, std::int64_t useful,
                                           bool convex) {
    window_kernel made;
    shape_map<std::uint32_t> known;
    const auto row_of = [&](shape lengths) -> std::uint32_t {
      lengths.rows = 1;
      return known.find_or(lengths, [&] {
        made.rows_.push_back({lengths, {}, false});
        return static_cast<std::uint32_t>(made.rows_.size() - 1);
      });
    };
    const bool sorted = is_sorted_by_length(alone);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      if (sorted && i > 0 && alone[i] == alone[i - 1]) {
        const std::uint32_t same = made.entries_.back().row;
        made.add_last(same, std::min(made.rows_[same].times.size(), alone.size() - i));
        continue;
      }
      shape s = alone[i];
      std::uint32_t at = row_of(s);
      made.entries_.push_back({at, 1, 0});
      for (std::size_t count = 1;; ++count) {
        row& r = made.rows_[at];
        if (r.times.size() < count) r.extend(count, alone.size(), time, useful, convex);
        if (r.times.size() < count) break;
        made.entries_.back().to = static_cast<std::uint32_t>(count);
        if (i + count == alone.size()) break;
        const shape& next = alone[i + count];
        if (next.input <= s.input && next.target <= s.target) continue;
        s = {1, std::max(s.input, next.input), std::max(s.target, next.target)};
        at = row_of(s);
        made.entries_.push_back({at, static_cast<std::uint32_t>(count + 1), static_cast<std::uint32_t>(count)});
      }
      if (made.entries_[made.first_entry_.back()].to == 0) return std::nullopt;
      made.first_entry_.push_back(made.entries_.size());
      made.find_limits(i);
    }
    return made;
  }

  [[nodiscard]] std::size_t samples() const { return first_entry_.size() - 1; }
  /// Least and largest limit that make a difference.
  [[nodiscard]] std::int64_t least_limit() const { return least_limit_; }
  [[nodiscard]] std::int64_t most_limit() const { return most_limit_; }

  /// Time of `count` samples from `first` on, which fit.
  [[nodiscard]] std::int64_t time_of(std::size_t first, std::size_t count) const {
    std::size_t e = first_entry_[first];
    while (entries_[e].to < count)
      ++e;
    return rows_[entries_[e].row].times[count - 1];
  }

  /// Solves for micro-batches that take `limit` at most: none where a sample alone takes longer.
  std::optional<cut_times> solve(std::int64_t limit, suffix_sums<>& sums) const {
    if (limit < least_limit_) return std::nullopt;
    for (std::size_t i = samples(); i-- > 0;) {
      std::int64_t least = int64_limit;
      std::uint32_t taken = 0;
      const std::int64_t* rest = sums.least.data() + i;
      for (std::size_t e = first_entry_[i]; e < first_entry_[i + 1]; ++e) {
        const entry& now = entries_[e];
        const std::int64_t* times = rows_[now.row].times.data();
        std::uint32_t count = now.from;
        for (; count <= now.to && times[count - 1] <= limit; ++count) {
          const std::int64_t sum = saturating_add(times[count - 1], rest[count]);
          if (sum > least) continue;
          least = sum;
          taken = count;
        }
        if (count <= now.to) break;
      }
      sums.least[i] = least;
      sums.taken[i] = taken;
    }
    return cut_times{slowest(sums.taken), sums.least[0]};
  }

 private:
  /// Micro-batches of `from` .. `to` samples have the lengths of row `row`.
  struct entry {
    std::uint32_t row;
    std::uint32_t from;
    std::uint32_t to;
  };
  /// Times of 1, 2, .. rows of one pair of lengths.
  struct row {
    shape alone;
    std::vector<std::int64_t> times;
    bool complete = false;

    /// Makes times known up to `count` rows, if so many fit.
    template <class ShapeTime>
    void extend(std::size_t count, std::size_t most, ShapeTime& time, std::int64_t useful, bool convex) {
      if (complete) return;
      if (convex) {
        complete = true;
        fill_from_pieces(most, time, useful);
        return;
      }
      while (times.size() < count && !complete) {
        const auto rows = static_cast<std::int64_t>(times.size() + 1);
        const std::optional<nanoseconds> t = time(shape{rows, alone.input, alone.target});
        complete = !t || (rows > 1 && t->value() > useful);
        if (!complete) times.push_back(t->value());
      }
    }

    template <class ShapeTime>
    void fill_from_pieces(std::size_t most, ShapeTime& time, std::int64_t useful) {
      const std::optional<nanoseconds> one = time(alone);
      if (!one) return;
      const auto [last, at_last] = last_fitting(alone, time, one->value(), 1, static_cast<std::int64_t>(most));
      const auto value = [&](std::int64_t rows) { return time(shape{rows, alone.input, alone.target})->value(); };
      std::vector<time_piece> pieces;
      piece_finder{value, pieces}.append(last, one->value(), at_last);
      for (const time_piece& piece : pieces)
        for (std::int64_t rows = piece.from; rows <= piece.to; ++rows) {
          if (rows > 1 && piece.at(rows) > useful) return;
          times.push_back(piece.at(rows));
        }
    }
  };

  void add_last(std::uint32_t same, std::size_t to) {
    entries_.push_back({same, 1, static_cast<std::uint32_t>(to)});
    first_entry_.push_back(entries_.size());
  }

  void find_limits(std::size_t i) {
    const entry& first = entries_[first_entry_[i]];
    least_limit_ = std::max(least_limit_, rows_[first.row].times.front());
    for (std::size_t e = first_entry_[i]; e < first_entry_[i + 1]; ++e)
      if (entries_[e].to >= entries_[e].from)
        most_limit_ = std::max(most_limit_, rows_[entries_[e].row].times[entries_[e].to - 1]);
  }

  [[nodiscard]] std::int64_t slowest(const std::vector<std::uint32_t>& taken) const {
    std::int64_t most = 0;
    for (std::size_t i = 0; i < taken.size(); i += taken[i]) {
      most = std::max(most, time_of(i, taken[i]));
    }
    return most;
  }

  std::vector<entry> entries_;
  std::vector<std::size_t> first_entry_{0};  ///< of each sample, and one past the last's
  std::vector<row> rows_;
  std::int64_t least_limit_ = 0;
  std::int64_t most_limit_ = 0;
};

}  // namespace dynapipe::detail
