#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

/// Times of micro-batches of samples in a row, all of them computed beforehand: what a partition asks over and over.
///
/// A range of samples, given by its first and its count, is as long as its longest; `row(i)` holds the times of the
/// ranges that begin with sample i, one after another by count, as far as they fit. With one length, longest first, the
/// shape of a range depends on its first length and its count alone: equal lengths share a row, and a new one begins
/// only where the length changes.
///
/// Complexity: one call of the pricing functor for each entry. Memory: 8 bytes an entry and 16 a sample; entries are
/// the ranges that fit, by distinct first length where rows are shared, otherwise by first sample. Lookups are two
/// loads and a comparison.
class shape_table {
 public:
  /// `alone`: the padded shape of each sample as a micro-batch of its own, in order. `time(shape)` gives a time, none
  /// where the shape does not fit; it must not fall, nor fit again, when rows or a length grow. Rows stop there, and
  /// before a range of two samples or more that takes longer than `useful`.
  template <class ShapeTime>
  shape_table(std::span<const shape> alone, ShapeTime&& time, nanoseconds useful = nanoseconds::max()) {
    const std::size_t n = alone.size();
    const bool shares =
        std::all_of(alone.begin(), alone.end(), [](const shape& s) { return s.target == 0; }) &&
        std::is_sorted(alone.begin(), alone.end(), [](const shape& a, const shape& b) { return a.input > b.input; });
    rows_.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
      if (i > 0 && shares && alone[i] == alone[i - 1]) {
        rows_.push_back({rows_.back().begin, std::min(rows_.back().count, n - i)});
        continue;
      }
      const std::size_t begin = times_.size();
      shape s;
      for (std::size_t j = i; j < n; ++j) {
        s = {s.rows + 1, std::max(s.input, alone[j].input), std::max(s.target, alone[j].target)};
        const std::optional<nanoseconds> t = time(s);
        if (!t || (j > i && *t > useful)) break;
        times_.push_back(t->value());
      }
      rows_.push_back({begin, times_.size() - begin});
    }
  }

  [[nodiscard]] std::size_t samples() const { return rows_.size(); }
  /// Times in nanoseconds of the ranges that begin with sample `first`, by count - 1. They do not fall.
  [[nodiscard]] std::span<const std::int64_t> row(std::size_t first) const {
    return {times_.data() + rows_[first].begin, rows_[first].count};
  }
  /// Time in nanoseconds of `count` > 0 samples from `first` on; the largest int64 where they do not fit.
  [[nodiscard]] std::int64_t operator()(std::size_t first, std::size_t count) const {
    const extent& row = rows_[first];
    return count <= row.count ? times_[row.begin + count - 1] : int64_limit;
  }
  /// Entries, for what they cost in memory.
  [[nodiscard]] std::size_t size() const { return times_.size(); }

 private:
  struct extent {
    std::size_t begin;
    std::size_t count;
  };
  std::vector<std::int64_t> times_;
  std::vector<extent> rows_;
};

}  // namespace dynapipe
