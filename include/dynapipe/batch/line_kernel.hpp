#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <dynapipe/batch/row_times.hpp>
#include <dynapipe/batch/suffix_sums.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe::detail {

/// The dynamic program for samples sorted by their one length, longest first, whose times are pieces of lines in the
/// number of rows.
///
/// For a sample i of a run and one piece, the best end j of its micro-batch is the least f(j) + slope * j over a window
/// that moves with i: a sliding-window minimum. A queue holds the ends that no nearer end beats, nearest last, so its
/// front is the best; ties keep the larger micro-batch. From one run to the next the slope grows with the length, which
/// only favours nearer ends, so the queue stays and is thinned; where the slope or a border of the window goes the
/// other way, it is filled anew.
///
/// O(samples x pieces) time for each limit, and O(window) for each run that needs a new queue; 12 bytes a sample.
template <class Lazy = void>
class line_kernel {
 public:
  /// `time` as in `partition`, convex in rows. None where a sample alone does not fit, or sums might overflow.
  template <class ShapeTime>
  static std::optional<line_kernel> make(std::vector<sample_run> runs, ShapeTime& time) {
    line_kernel made{std::move(runs)};
    return made.price(time) ? std::optional{std::move(made)} : std::nullopt;
  }

  [[nodiscard]] std::size_t samples() const { return runs_.back().end; }
  /// Least and largest limit that make a difference.
  [[nodiscard]] std::int64_t least_limit() const { return pieces_[runs_.front().first_piece].at(1); }
  [[nodiscard]] std::int64_t most_limit() const {
    std::int64_t most = 0;
    for (const run& r : runs_)
      most = std::max(most, pieces_[r.last_piece].at(pieces_[r.last_piece].to));
    return most;
  }

  /// Time of `count` samples from `first` on, which fit.
  [[nodiscard]] std::int64_t time_of(std::size_t first, std::size_t count) const {
    std::size_t g = static_cast<std::size_t>(
        std::upper_bound(runs_.begin(), runs_.end(), first, [](std::size_t i, const run& r) { return i < r.end; }) -
        runs_.begin());
    return time_in(runs_[g], count);
  }

  /// Solves for micro-batches that take `limit` at most: none where a sample alone takes longer.
  std::optional<cut_times> solve(std::int64_t limit, suffix_sums<>& sums);

 private:
  struct run {
    std::size_t begin = 0;
    std::size_t end = 0;
    shape alone;
    std::size_t first_piece = 0;
    std::size_t last_piece = 0;
  };
  /// Ends of micro-batches with f + slope * end, and the piece that they are for.
  struct entry {
    std::int64_t key;
    std::size_t end;
  };
  struct queue {
    std::vector<entry> entries;
    std::size_t front = 0;
    std::int64_t slope = 0;
    std::size_t low = 0;   ///< ends below are not in it yet
    std::size_t high = 0;  ///< ends above have left it
    bool filled = false;
  };

  explicit line_kernel(std::vector<sample_run> runs) {
    for (const sample_run& r : runs)
      runs_.push_back({r.begin, r.end, r.alone, 0, 0});
  }

  template <class ShapeTime>
  bool price(ShapeTime& time) {
    std::int64_t guess = 1;
    wide_int all = 0;
    for (std::size_t g = 0; g < runs_.size(); ++g) {
      run& r = runs_[g];
      const std::optional<nanoseconds> one = time(r.alone);
      if (!one) return false;
      const auto most = static_cast<std::int64_t>(samples() - r.begin);
      if (g > 0) guess = guess * runs_[g - 1].alone.input / r.alone.input;
      const auto [last, at_last] = last_fitting(r.alone, time, one->value(), guess, most);
      guess = last;
      const auto value = [&](std::int64_t rows) { return time(shape{rows, r.alone.input, 0})->value(); };
      r.first_piece = pieces_.size();
      piece_finder{value, pieces_}.append(last, one->value(), at_last);
      r.last_piece = pieces_.size() - 1;
      all += static_cast<wide_int>(r.end - r.begin) * one->value();
      if (all + static_cast<wide_int>(pieces_.back().slope) * static_cast<wide_int>(samples()) > int64_limit / 4)
        return false;
      most_pieces_ = std::max(most_pieces_, r.last_piece - r.first_piece + 1);
    }
    return true;
  }

  void enter(queue& q, const time_piece& piece, std::size_t last, const std::vector<std::int64_t>& least) const;
  static void thin(queue& q, std::int64_t steeper);
  static void push(queue& q, std::size_t end, const std::vector<std::int64_t>& least);
  [[nodiscard]] std::int64_t time_in(const run& r, std::size_t count) const {
    std::size_t p = r.first_piece;
    while (pieces_[p].to < static_cast<std::int64_t>(count))
      ++p;
    return pieces_[p].at(static_cast<std::int64_t>(count));
  }
  [[nodiscard]] std::int64_t slowest(const std::vector<std::uint32_t>& taken) const;

  std::vector<run> runs_;
  std::vector<time_piece> pieces_;
  std::size_t most_pieces_ = 0;  ///< of a run
  std::vector<queue> queues_;    ///< by piece, counted from a run's last
  std::vector<std::pair<time_piece, std::size_t>> active_;
};

/// Makes `q` ready for sample `last` of a run, the first of it that is solved.
template <class Lazy>
void line_kernel<Lazy>::enter(queue& q, const time_piece& piece, std::size_t last,
                              const std::vector<std::int64_t>& least) const {
  const std::size_t low = last + static_cast<std::size_t>(piece.from);
  const std::size_t high = std::min(samples(), last + static_cast<std::size_t>(piece.to));
  std::size_t next = high;
  if (q.filled && piece.slope >= q.slope && low <= q.low && high <= q.high) {
    thin(q, piece.slope - q.slope);
    next = std::min(high, q.low - 1);
  } else {
    q.entries.clear();
    q.front = 0;
  }
  q.slope = piece.slope;
  q.filled = true;
  for (std::size_t end = next; end >= low; --end)
    push(q, end, least);
}

/// Makes every entry dearer by `steeper` times its end, and drops those that a nearer one beats now.
template <class Lazy>
void line_kernel<Lazy>::thin(queue& q, std::int64_t steeper) {
  if (steeper == 0) return;
  std::size_t kept = q.entries.size();
  std::int64_t best = int64_limit;
  for (std::size_t e = q.entries.size(); e-- > q.front;) {
    entry now = q.entries[e];
    now.key += steeper * static_cast<std::int64_t>(now.end);
    if (now.key > best) continue;
    best = now.key;
    q.entries[--kept] = now;
  }
  q.front = kept;
}

template <class Lazy>
void line_kernel<Lazy>::push(queue& q, std::size_t end, const std::vector<std::int64_t>& least) {
  const std::int64_t key = least[end] + q.slope * static_cast<std::int64_t>(end);
  while (q.entries.size() > q.front && q.entries.back().key > key)
    q.entries.pop_back();
  if (q.entries.size() == q.entries.capacity() && q.front > q.entries.size() / 2) {
    q.entries.erase(q.entries.begin(), q.entries.begin() + static_cast<std::ptrdiff_t>(q.front));
    q.front = 0;
  }
  q.entries.push_back({key, end});
}

template <class Lazy>
std::optional<cut_times> line_kernel<Lazy>::solve(std::int64_t limit, suffix_sums<>& sums) {
  if (limit < least_limit()) return std::nullopt;
  const std::size_t n = samples();
  queues_.resize(most_pieces_);
  for (queue& q : queues_)
    q.filled = false;
  for (std::size_t g = runs_.size(); g-- > 0;) {
    const run& r = runs_[g];
    const std::size_t skipped = most_pieces_ - (r.last_piece - r.first_piece + 1);
    active_.clear();
    for (std::size_t p = 0; p < most_pieces_; ++p) {
      queue& q = queues_[p];
      if (p < skipped || pieces_[r.first_piece + p - skipped].at(pieces_[r.first_piece + p - skipped].from) > limit) {
        q.filled = false;
        continue;
      }
      time_piece piece = pieces_[r.first_piece + p - skipped];
      if (piece.at(piece.to) > limit) piece.to = (limit - piece.offset) / piece.slope;
      enter(q, piece, r.end - 1, sums.least);
      active_.push_back({piece, p});
    }
    for (std::size_t i = r.end; i-- > r.begin;) {
      std::int64_t best = int64_limit;
      std::size_t best_end = 0;
      for (const auto& [piece, p] : active_) {
        queue& q = queues_[p];
        const std::size_t low = i + static_cast<std::size_t>(piece.from);
        const std::size_t high = i + static_cast<std::size_t>(piece.to);
        if (i + 1 < r.end && low <= n) push(q, low, sums.least);
        while (q.front < q.entries.size() && q.entries[q.front].end > high)
          ++q.front;
        if (q.front == q.entries.size()) continue;
        const entry& front = q.entries[q.front];
        const std::int64_t sum = front.key + piece.offset - piece.slope * static_cast<std::int64_t>(i);
        if (sum < best || (sum == best && front.end > best_end)) {
          best = sum;
          best_end = front.end;
        }
      }
      sums.least[i] = best;
      sums.taken[i] = static_cast<std::uint32_t>(best_end - i);
    }
    for (const auto& [piece, p] : active_) {
      queues_[p].low = r.begin + static_cast<std::size_t>(piece.from);
      queues_[p].high = r.begin + static_cast<std::size_t>(piece.to);
    }
  }
  return cut_times{slowest(sums.taken), sums.least[0]};
}

template <class Lazy>
std::int64_t line_kernel<Lazy>::slowest(const std::vector<std::uint32_t>& taken) const {
  std::int64_t most = 0;
  std::size_t g = 0;
  for (std::size_t i = 0; i < taken.size(); i += taken[i]) {
    while (runs_[g].end <= i)
      ++g;
    most = std::max(most, time_in(runs_[g], taken[i]));
  }
  return most;
}

}  // namespace dynapipe::detail
