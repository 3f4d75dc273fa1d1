#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/partition.hpp>

using namespace dynapipe;

namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

/// A micro-batch takes max(least, fixed + linear * tokens + square * pairs), and `late` for each row beyond `many`;
/// more than `room` padded tokens do not fit. With `turn`, longer rows cost more to begin with and less for each
/// further one. Convex in rows.
struct price {
  std::int64_t fixed = 0;
  std::int64_t linear = 1;
  std::int64_t square = 0;
  std::int64_t room = never;
  std::int64_t least = 0;
  std::int64_t late = 0;
  std::int64_t many = 0;
  std::int64_t turn = 0;

  std::optional<nanoseconds> operator()(const shape& s) const {
    const std::int64_t rows_tokens = s.rows * (s.input + s.target);
    if (rows_tokens > room || (turn > 0 && s.rows > 12)) return std::nullopt;
    const std::int64_t length = s.input + s.target;
    const std::int64_t all = turn * (12 * length + s.rows * (2'000 - length)) + fixed + linear * rows_tokens +
                             square * s.rows * (s.input * s.input + s.target * s.target);
    return nanoseconds{std::max(least, all) + late * std::max<std::int64_t>(0, s.rows - many)};
  }
};

struct problem {
  std::vector<sample_lengths> samples;
  shape_options shapes{};
  price time{};
  partition_options options{};

  [[nodiscard]] std::optional<partition_result> solve(bool convex = false) const {
    partition_options how = options;
    how.convex_rows = convex;
    return partition(samples, shapes, time, how);
  }

  /// Time of samples [from, to), computed from nothing but the definition of a padded micro-batch.
  [[nodiscard]] std::optional<std::int64_t> time_of(std::size_t from, std::size_t to) const {
    shape s{static_cast<std::int64_t>(to - from), 0, 0};
    for (std::size_t i = from; i < to; ++i) {
      s.input = std::max(s.input, padded_length(samples[i].input, shapes));
      if (samples[i].target > 0) s.target = std::max(s.target, padded_length(samples[i].target, shapes));
    }
    const std::optional<nanoseconds> t = time(s);
    return t ? std::optional{t->value()} : std::nullopt;
  }
  [[nodiscard]] std::int64_t objective(std::int64_t t_max, std::int64_t sum) const {
    return (options.devices - 1) * options.replicas * t_max + options.stages_per_device * sum;
  }
};

struct optimum {
  std::int64_t objective = never;
  std::int64_t t_max = never;  ///< the smallest of those with that objective
};

/// The best of a cut, given as a bit for each inner border; none where a micro-batch does not fit.
optimum judge(const problem& p, std::uint64_t borders) {
  std::int64_t t_max = 0;
  std::int64_t sum = 0;
  std::size_t from = 0;
  for (std::size_t i = 1; i <= p.samples.size(); ++i) {
    if (i < p.samples.size() && (borders >> (i - 1) & 1U) == 0) continue;
    const std::optional<std::int64_t> t = p.time_of(from, i);
    if (!t) return {};
    t_max = std::max(t_max, *t);
    sum += *t;
    from = i;
  }
  return {p.objective(t_max, sum), t_max};
}

optimum brute_force(const problem& p) {
  optimum best;
  for (std::uint64_t borders = 0; borders < std::uint64_t{1} << (p.samples.size() - 1); ++borders) {
    const optimum found = judge(p, borders);
    if (found.objective < best.objective || (found.objective == best.objective && found.t_max < best.t_max))
      best = found;
  }
  return best;
}

/// The same by a dynamic program for every time that some range takes, one after another.
optimum reference(const problem& p) {
  const std::size_t n = p.samples.size();
  std::vector<std::vector<std::int64_t>> times(n);
  std::set<std::int64_t> limits;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i + 1; j <= n; ++j) {
      const std::optional<std::int64_t> t = p.time_of(i, j);
      if (!t) break;
      times[i].push_back(*t);
      limits.insert(*t);
    }
  optimum best;
  for (const std::int64_t limit : limits) {
    std::vector<std::int64_t> sum(n + 1, never);
    sum[0] = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (sum[i] == never) continue;
      for (std::size_t k = 0; k < times[i].size() && times[i][k] <= limit; ++k)
        sum[i + k + 1] = std::min(sum[i + k + 1], sum[i] + times[i][k]);
    }
    if (sum[n] == never) continue;
    const std::int64_t value = p.objective(limit, sum[n]);
    if (value < best.objective) best = {value, limit};
  }
  return best;
}

/// Whether a result's cuts are in order and give its times.
void check_result(const problem& p, const partition_result& result) {
  REQUIRE_FALSE(result.cuts.empty());
  CHECK(result.cuts.front() == 0);
  std::int64_t t_max = 0;
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < result.cuts.size(); ++k) {
    const std::size_t to = k + 1 < result.cuts.size() ? result.cuts[k + 1] : p.samples.size();
    REQUIRE(result.cuts[k] < to);
    const std::optional<std::int64_t> t = p.time_of(result.cuts[k], to);
    REQUIRE(t.has_value());
    t_max = std::max(t_max, *t);
    sum += *t;
  }
  CHECK(result.t_max.value() == t_max);
  CHECK(result.sum.value() == sum);
  CHECK(result.scaled_objective(p.options) == p.objective(t_max, sum));
}

std::vector<sample_lengths> of_inputs(const std::vector<std::int64_t>& inputs) {
  std::vector<sample_lengths> samples;
  for (const std::int64_t input : inputs)
    samples.push_back({input, 0, input});
  return samples;
}

enum class kind : std::uint8_t { sorted, unsorted, two_lengths };

problem random_problem(std::mt19937_64& random, kind what, std::size_t samples) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  problem p;
  p.shapes.padding_multiple = std::array<std::int64_t, 3>{1, 8, 16}[random() % 3];
  const std::int64_t longest = std::array<std::int64_t, 4>{3, 20, 100, 400}[random() % 4];
  for (std::size_t i = 0; i < samples; ++i) {
    p.samples.push_back({1 + below(longest), 0, 1});
    if (what == kind::two_lengths) p.samples.back().target = below(3) == 0 ? below(2) : 1 + below(longest);
  }
  if (what != kind::unsorted)
    std::sort(p.samples.begin(), p.samples.end(), [](const sample_lengths& a, const sample_lengths& b) {
      return a.input != b.input ? a.input > b.input : a.target > b.target;
    });
  p.time = {.fixed = below(4) * below(300), .linear = 1 + below(5), .square = below(2) * below(3)};
  if (below(2) == 0) p.time.least = below(longest * 20);
  if (below(3) == 0) p.time.late = below(100);
  p.time.many = 1 + below(6);
  if (below(4) == 0) p.time.turn = 1 + below(8);
  if (below(3) > 0) p.time.room = longest + below(longest * 6);
  p.options = {1 + below(8), 1 + below(4), 1 + below(3)};
  return p;
}

}  // namespace

TEST_CASE("nothing to cut, and one sample") {
  CHECK(problem{.samples = {}}.solve()->cuts.empty());
  problem one{.samples = of_inputs({10})};
  one.options.devices = 4;
  REQUIRE(one.solve().has_value());
  CHECK(one.solve()->cuts == std::vector<std::size_t>{0});
  CHECK(one.solve()->t_max == nanoseconds{16});
  CHECK(one.solve()->sum == nanoseconds{16});
  one.time.room = 15;
  CHECK_FALSE(one.solve().has_value());
}

TEST_CASE("the objective: fill and drain against the price of a micro-batch, by hand") {
  problem p{.samples = of_inputs({8, 8, 8, 8})};
  p.time.fixed = 10;
  // Together 42; in pairs 26 + 26; one by one 4 x 18.
  p.options = {.devices = 1};
  CHECK(p.solve()->cuts == std::vector<std::size_t>{0});  // 42 < 52 < 72
  p.options = {.devices = 3};
  CHECK(p.solve()->cuts == std::vector<std::size_t>{0, 2});  // 126, 104, 108
  p.options = {.devices = 8};
  CHECK(p.solve()->cuts == std::vector<std::size_t>{0, 1, 2, 3});  // 336, 234, 198
  CHECK(p.solve()->scaled_objective(p.options) == 198);
  // Four stages a device fill and drain in a quarter: 7/4 of t_max. 4 x: 42 * 7 + 168, 26 * 7 + 208, 18 * 7 + 288.
  p.options = {.devices = 8, .stages_per_device = 4};
  CHECK(p.solve()->cuts == std::vector<std::size_t>{0, 2});
  CHECK(p.solve()->scaled_objective(p.options) == 390);
  // With replicas the sum counts less: 3 * 2 * 26 + 52 = 208, 3 * 2 * 18 + 72 = 180.
  p.options = {.devices = 4, .replicas = 2};
  CHECK(p.solve()->cuts == std::vector<std::size_t>{0, 1, 2, 3});
}

TEST_CASE("the best t_max stands in no grid of times") {
  // Alone 12 and 10, together 24. A grid of width 5 that keeps the least time of a cell offers 10 (which 12 exceeds)
  // and 24: 96. The optimum is at 12: 3 * 12 + 22.
  problem p{.samples = of_inputs({12, 10})};
  p.shapes.padding_multiple = 1;
  p.options.devices = 4;
  CHECK(p.solve()->t_max == nanoseconds{12});
  CHECK(p.solve()->scaled_objective(p.options) == 58);
  // Times a nanosecond apart decide: 1,000 ranges whose t_max differ by one.
  problem close{.samples = of_inputs({1'003, 1'002, 1'001, 1'000})};
  close.shapes.padding_multiple = 1;
  close.time.fixed = 1;
  close.options.devices = 2;
  CHECK(close.solve()->scaled_objective(close.options) == brute_force(close).objective);
  CHECK(close.solve()->t_max == nanoseconds{1'004});
}

TEST_CASE("equal samples are cut evenly where that is best") {
  problem p{.samples = of_inputs(std::vector<std::int64_t>(12, 100))};
  p.time.fixed = 50;
  p.options.devices = 5;
  const std::optional<partition_result> found = p.solve();
  REQUIRE(found.has_value());
  check_result(p, *found);
  CHECK(found->scaled_objective(p.options) == brute_force(p).objective);
}

TEST_CASE("none exactly where a sample alone does not fit") {
  problem p{.samples = of_inputs({80, 16, 8})};
  p.time.room = 80;
  CHECK(p.solve().has_value());
  p.time.room = 79;
  CHECK_FALSE(p.solve().has_value());
  // The one that does not fit stands last, and unsorted.
  p.samples = of_inputs({8, 16, 80});
  CHECK_FALSE(p.solve().has_value());
  p.time.room = 80;
  CHECK(p.solve().has_value());
}

TEST_CASE("sums beyond 63 bits do not make samples that fit infeasible") {
  problem p{.samples = of_inputs({8, 8, 8, 8})};
  p.time = {.fixed = std::int64_t{1} << 61, .linear = 1, .square = 0, .room = 8};
  CHECK(p.solve().has_value());
}

TEST_CASE("partition equals brute force") {
  constexpr unsigned seed = 20'261'130;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  int feasible = 0;
  int infeasible = 0;
  for (const kind what : {kind::sorted, kind::unsorted, kind::two_lengths})
    for (int round = 0; round < 3'000; ++round) {
      CAPTURE(static_cast<int>(what));
      CAPTURE(round);
      const problem p = random_problem(random, what, 1 + random() % 11);
      const optimum best = brute_force(p);
      for (const bool convex : {false, true}) {
        CAPTURE(convex);
        const std::optional<partition_result> found = p.solve(convex);
        REQUIRE(found.has_value() == (best.objective != never));
        (found ? feasible : infeasible) += 1;
        if (!found) continue;
        check_result(p, *found);
        REQUIRE(found->scaled_objective(p.options) == best.objective);
        REQUIRE(found->t_max.value() == best.t_max);  // of equal objectives the smallest
        REQUIRE(found->cuts == p.solve()->cuts);
      }
    }
  MESSAGE("inputs: ", (feasible + infeasible), ", ", infeasible, " of them infeasible");
  CHECK(feasible > 10'000);
  CHECK(infeasible > 500);
}

TEST_CASE("larger inputs: as good as a dynamic program over every time, and as any random cut") {
  constexpr unsigned seed = 4'096;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 30; ++round) {
    CAPTURE(round);
    problem p = random_problem(random, static_cast<kind>(round % 3), 200 + random() % 200);
    const auto longest = std::max_element(p.samples.begin(), p.samples.end(), [](const auto& a, const auto& b) {
      return a.input + a.target < b.input + b.target;
    });
    p.time.room = 3 * (longest->input + longest->target) + 100;
    const std::optional<partition_result> found = p.solve();
    REQUIRE(found.has_value());
    check_result(p, *found);
    CHECK(found->scaled_objective(p.options) == reference(p).objective);
    const std::optional<partition_result> by_lines = p.solve(true);
    REQUIRE(by_lines.has_value());
    check_result(p, *by_lines);
    CHECK(by_lines->scaled_objective(p.options) == found->scaled_objective(p.options));
    CHECK(by_lines->t_max == found->t_max);
    CHECK(by_lines->cuts == found->cuts);

    for (int tries = 0; tries < 2'000; ++tries) {
      std::int64_t t_max = 0;
      std::int64_t sum = 0;
      const std::size_t step = 1 + random() % 12;
      for (std::size_t from = 0; from < p.samples.size();) {
        std::size_t to = std::min(p.samples.size(), from + 1 + random() % step);
        while (!p.time_of(from, to))
          --to;
        t_max = std::max(t_max, *p.time_of(from, to));
        sum += *p.time_of(from, to);
        from = to;
      }
      REQUIRE(found->scaled_objective(p.options) <= p.objective(t_max, sum));
    }
  }
}

TEST_CASE("any times that are convex in rows: lines and the whole window agree") {
  constexpr unsigned seed = 77;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 3'000; ++round) {
    CAPTURE(round);
    // times[length][rows], each length a line above what the length before takes at most, or the larger of both.
    constexpr std::int64_t lengths = 6;
    const std::int64_t most = 2 + below(9);
    std::vector<std::vector<std::int64_t>> times(lengths + 1,
                                                 std::vector<std::int64_t>(static_cast<std::size_t>(most) + 1));
    for (std::size_t l = 1; l <= lengths; ++l) {
      const bool above = below(2) == 0;
      const std::int64_t offset = above ? times[l - 1].back() + below(10) : below(100);
      const std::int64_t slope = below(40);
      for (std::size_t rows = 1; rows < times[l].size(); ++rows)
        times[l][rows] = std::max(times[l - 1][rows], offset + slope * static_cast<std::int64_t>(rows));
    }
    const auto time = [&](const shape& s) -> std::optional<nanoseconds> {
      if (s.rows > most - s.input / 3) return std::nullopt;
      return nanoseconds{times[static_cast<std::size_t>(s.input)][static_cast<std::size_t>(s.rows)]};
    };
    std::vector<std::int64_t> inputs;
    for (std::int64_t i = 5 + below(60); i > 0; --i)
      inputs.push_back(1 + below(lengths));
    std::sort(inputs.rbegin(), inputs.rend());
    const std::vector<sample_lengths> samples = of_inputs(inputs);
    partition_options options{.devices = 1 + below(5), .replicas = 1 + below(3)};
    const std::optional<partition_result> whole = partition(samples, {.padding_multiple = 1}, time, options);
    options.convex_rows = true;
    const std::optional<partition_result> lines = partition(samples, {.padding_multiple = 1}, time, options);
    REQUIRE(whole.has_value() == lines.has_value());
    if (!whole) continue;
    REQUIRE(lines->scaled_objective(options) == whole->scaled_objective(options));
    REQUIRE(lines->t_max == whole->t_max);
    REQUIRE(lines->cuts == whole->cuts);
  }
}

TEST_CASE("the same input gives the same cuts") {
  std::mt19937_64 random{3};
  for (int round = 0; round < 20; ++round) {
    const problem p = random_problem(random, kind::two_lengths, 60);
    const std::optional<partition_result> a = p.solve();
    const std::optional<partition_result> b = p.solve();
    REQUIRE(a.has_value() == b.has_value());
    if (a) CHECK(a->cuts == b->cuts);
  }
}
