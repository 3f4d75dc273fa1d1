#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <dynapipe/batch/limit_search.hpp>
#include <dynapipe/batch/row_times.hpp>
#include <dynapipe/batch/suffix_sums.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe::detail {

/// `count` micro-batches of `rows` rows; their lengths are those of the first sample in them.
struct chain_item {
  std::int64_t rows = 0;
  std::int64_t count = 0;
};

/// Micro-batches of samples longest first, filled one after another: all rows are taken until samples run out.
using shape_chain = std::vector<chain_item>;

struct chain_value {
  cut_times times{int64_limit, int64_limit};
  wide_int objective = static_cast<wide_int>(int64_limit) * int64_limit;

  [[nodiscard]] bool better_than(const chain_value& other) const {
    return objective != other.objective ? objective < other.objective : times.t_max < other.times.t_max;
  }
};

/// Times of 1, 2, .. rows of each run's lengths, asked for when they are first wanted.
///
/// Runs are longest first, no length of one above that of the run before. 8 bytes for each number of rows of a run that
/// fits and that the samples from there on can fill, and 4 a sample.
template <class ShapeTime>
class times_of_runs {
 public:
  /// None where some sample alone does not fit.
  static std::optional<times_of_runs> make(std::vector<sample_run> runs, ShapeTime& time) {
    times_of_runs made{std::move(runs), time};
    std::int64_t guess = 1;
    for (const sample_run& r : made.runs_) {
      const std::optional<nanoseconds> one = time(r.alone);
      if (!one) return std::nullopt;
      const auto left = static_cast<std::int64_t>(made.samples() - r.begin);
      guess = last_fitting(r.alone, time, one->value(), guess, left).first;
      made.rows_.emplace_back(static_cast<std::size_t>(std::min(guess, left)) + 1, unknown);
      made.run_at_.resize(r.end, static_cast<std::uint32_t>(made.rows_.size() - 1));
    }
    return made;
  }

  [[nodiscard]] std::size_t samples() const { return runs_.back().end; }
  [[nodiscard]] std::size_t runs() const { return runs_.size(); }
  [[nodiscard]] const sample_run& run(std::size_t g) const { return runs_[g]; }
  /// The run of a sample.
  [[nodiscard]] std::size_t run_at(std::size_t position) const { return run_at_[position]; }
  [[nodiscard]] std::int64_t most(std::size_t g) const { return static_cast<std::int64_t>(rows_[g].size()) - 1; }

  /// The time of `rows` rows, 1 .. most(g).
  std::int64_t at(std::size_t g, std::int64_t rows) {
    std::int64_t& known = rows_[g][static_cast<std::size_t>(rows)];
    if (known == unknown) known = time_(shape{rows, runs_[g].alone.input, runs_[g].alone.target})->value();
    return known;
  }

  /// The most rows that take `limit` at most; 0 where one takes longer. O(log rows).
  std::int64_t most_within(std::size_t g, std::int64_t limit) {
    std::int64_t within = 0;
    std::int64_t beyond = most(g) + 1;
    while (within + 1 < beyond) {
      const std::int64_t middle = within + (beyond - within) / 2;
      (at(g, middle) <= limit ? within : beyond) = middle;
    }
    return within;
  }

  /// Rows that give about the least time a row: the best of 1 .. 4 and of steps by a third, then of nearer ones. O(log)
  std::int64_t thriftiest(std::size_t g) {
    std::int64_t best = 1;
    const auto offer = [&](std::int64_t rows) {
      if (rows < 1 || rows > most(g)) return;
      if (static_cast<wide_int>(at(g, rows)) * best <= static_cast<wide_int>(at(g, best)) * rows) best = rows;
    };
    for (std::int64_t rows = 2; rows < most(g); rows += std::max<std::int64_t>(1, rows / 3))
      offer(rows);
    offer(most(g));
    for (std::int64_t step = best / 4; step > 0; step /= 2)
      for (const std::int64_t rows : {best + step, best - step})
        offer(rows);
    return best;
  }

  /// What a chain costs; worst of all where a micro-batch does not fit or a sample is left.
  chain_value judge(const shape_chain& of, const objective_weights& weights) {
    std::size_t position = 0;
    std::int64_t t_max = 0;
    std::int64_t sum = 0;
    for (const chain_item& item : of) {
      if (position >= samples()) break;
      const std::size_t g = run_at_[position];
      if (item.rows > most(g)) return {};
      const std::int64_t t = at(g, item.rows);
      const std::int64_t left = ceil_div(static_cast<std::int64_t>(samples() - position), item.rows);
      const std::int64_t count = std::min(item.count, left);
      t_max = std::max(t_max, t);
      sum = saturating_add(sum, saturating_mul(t, count));
      position += static_cast<std::size_t>(item.rows * count);
    }
    if (position < samples()) return {};
    return {{t_max, sum}, weights.of(t_max, sum)};
  }

 private:
  static constexpr std::int64_t unknown = -1;

  times_of_runs(std::vector<sample_run> runs, ShapeTime& time) : runs_{std::move(runs)}, time_{time} {}

  std::vector<sample_run> runs_;
  ShapeTime& time_;
  std::vector<std::vector<std::int64_t>> rows_;
  std::vector<std::uint32_t> run_at_;
};

}  // namespace dynapipe::detail
