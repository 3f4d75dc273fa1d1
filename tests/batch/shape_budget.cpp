#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/shape_budget.hpp>

using namespace dynapipe;

namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

/// A micro-batch takes max(least, fixed + linear * tokens + square * pairs), and `late` for each row beyond `many`;
/// more than `room` padded tokens do not fit.
struct price {
  std::int64_t fixed = 0;
  std::int64_t linear = 1;
  std::int64_t square = 0;
  std::int64_t room = never;
  std::int64_t least = 0;
  std::int64_t late = 0;
  std::int64_t many = 0;

  std::optional<nanoseconds> operator()(const shape& s) const {
    const std::int64_t tokens = s.rows * (s.input + s.target);
    if (tokens > room) return std::nullopt;
    const std::int64_t all = fixed + linear * tokens + square * s.rows * (s.input * s.input + s.target * s.target);
    return nanoseconds{std::max(least, all) + late * std::max<std::int64_t>(0, s.rows - many)};
  }
};

struct problem {
  std::vector<sample_lengths> samples;
  shape_options shapes{};
  price time{};
  partition_options options{};

  [[nodiscard]] std::optional<shape_budget_result> solve(std::int64_t most) const {
    return shape_budget(samples, shapes, time, options, most);
  }
  [[nodiscard]] shape padded(std::size_t i) const {
    return {1, padded_length(samples[i].input, shapes),
            samples[i].target > 0 ? padded_length(samples[i].target, shapes) : 0};
  }
  [[nodiscard]] std::int64_t objective(std::int64_t t_max, std::int64_t sum) const {
    return (options.devices - 1) * options.replicas * t_max + options.stages_per_device * sum;
  }
};

/// The smallest shape that holds both.
shape join(const shape& a, const shape& b) {
  return {std::max(a.rows, b.rows), std::max(a.input, b.input), std::max(a.target, b.target)};
}

/// Exact, for few samples: every cut, and every way to let its micro-batches share shapes. Micro-batches that share one
/// need the smallest that holds them all, so no other sets of shapes can be better.
class brute_force {
 public:
  brute_force(const problem& p, std::size_t most) : p_{p}, most_{most} {
    for (std::uint64_t borders = 0; borders < std::uint64_t{1} << (p.samples.size() - 1); ++borders) {
      held_.clear();
      for (std::size_t i = 0; i < p.samples.size(); ++i) {
        const shape s = p.padded(i);
        if (i == 0 || (borders >> (i - 1) & 1U) != 0) {
          held_.push_back(s);
        } else {
          const std::int64_t rows = held_.back().rows + 1;
          held_.back() = join(held_.back(), s);
          held_.back().rows = rows;
        }
      }
      groups_.clear();
      share(0);
    }
  }
  [[nodiscard]] std::int64_t best() const { return best_; }

 private:
  struct group {
    shape common;
    std::int64_t count;
  };

  void share(std::size_t m) {
    if (m == held_.size()) {
      judge();
      return;
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const group before = groups_[g];
      groups_[g] = {join(before.common, held_[m]), before.count + 1};
      share(m + 1);
      groups_[g] = before;
    }
    if (groups_.size() == most_) return;
    groups_.push_back({held_[m], 1});
    share(m + 1);
    groups_.pop_back();
  }

  void judge() {
    std::int64_t t_max = 0;
    std::int64_t sum = 0;
    for (const group& g : groups_) {
      const std::optional<nanoseconds> t = p_.time(g.common);
      if (!t) return;
      t_max = std::max(t_max, t->value());
      sum += g.count * t->value();
    }
    best_ = std::min(best_, p_.objective(t_max, sum));
  }

  const problem& p_;
  std::size_t most_;
  std::vector<shape> held_;
  std::vector<group> groups_;
  std::int64_t best_ = never;
};

/// Whether a result keeps the budget, has every sample once in a shape that holds it, and says its own times.
void check_result(const problem& p, const shape_budget_result& result, std::int64_t most) {
  REQUIRE_FALSE(result.cuts.empty());
  CHECK(result.cuts.front() == 0);
  REQUIRE(result.shape_of.size() == result.cuts.size());
  CHECK(static_cast<std::int64_t>(result.shapes.size()) <= most);
  std::vector<bool> used(result.shapes.size());
  std::int64_t t_max = 0;
  std::int64_t sum = 0;
  std::size_t samples = 0;
  for (std::size_t m = 0; m < result.cuts.size(); ++m) {
    const std::size_t end = m + 1 < result.cuts.size() ? result.cuts[m + 1] : p.samples.size();
    REQUIRE(result.cuts[m] < end);
    REQUIRE(result.shape_of[m] < result.shapes.size());
    used[result.shape_of[m]] = true;
    const shape& s = result.shapes[result.shape_of[m]];
    CHECK(static_cast<std::int64_t>(end - result.cuts[m]) <= s.rows);
    for (std::size_t i = result.cuts[m]; i < end; ++i, ++samples)
      CHECK(join(p.padded(i), s) == s);
    const std::optional<nanoseconds> t = p.time(s);
    REQUIRE(t.has_value());
    t_max = std::max(t_max, t->value());
    sum += t->value();
  }
  CHECK(samples == p.samples.size());
  CHECK(std::all_of(used.begin(), used.end(), [](bool u) { return u; }));
  for (std::size_t a = 0; a < result.shapes.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      CHECK(result.shapes[a] != result.shapes[b]);
  CHECK(result.t_max.value() == t_max);
  CHECK(result.sum.value() == sum);
  CHECK(result.scaled_objective(p.options) == p.objective(t_max, sum));
  CHECK(result.lower_bound <= p.objective(t_max, sum));
}

enum class kind : std::uint8_t { shape_chain, arrival, two_lengths };

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
  if (what != kind::arrival)
    std::sort(p.samples.begin(), p.samples.end(), [](const sample_lengths& a, const sample_lengths& b) {
      return a.input != b.input ? a.input > b.input : a.target > b.target;
    });
  p.time = {.fixed = below(4) * below(300), .linear = 1 + below(5), .square = below(2) * below(3)};
  if (below(2) == 0) p.time.least = below(longest * 20);
  if (below(3) == 0) p.time.late = below(100);
  p.time.many = 1 + below(6);
  if (below(4) > 0) p.time.room = 2 * (longest + 16) + below(longest * 6);
  p.options = {1 + below(8), 1 + below(4), 1 + below(3)};
  return p;
}

std::vector<sample_lengths> of_inputs(const std::vector<std::int64_t>& inputs) {
  std::vector<sample_lengths> samples;
  for (const std::int64_t input : inputs)
    samples.push_back({input, 0, input});
  return samples;
}

struct comparison {
  std::int64_t cases = 0;
  std::int64_t equal = 0;
  double sum = 0;
  double worst = 1;

  void add(std::int64_t found, std::int64_t optimum) {
    const double ratio = static_cast<double>(found) / static_cast<double>(optimum);
    ++cases;
    equal += found == optimum ? 1 : 0;
    sum += ratio;
    worst = std::max(worst, ratio);
  }
};

/// Random small problems against brute force, budgets 1 .. 4.
comparison compare(kind what, std::uint64_t seed, int problems) {
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  comparison result;
  for (int round = 0; round < problems; ++round) {
    CAPTURE(round);
    const problem p = random_problem(random, what, 1 + random() % 7);
    std::int64_t before = never;
    for (std::int64_t most = 1; most <= 4; ++most) {
      CAPTURE(most);
      const std::int64_t optimum = brute_force{p, static_cast<std::size_t>(most)}.best();
      const std::optional<shape_budget_result> found = p.solve(most);
      REQUIRE(found.has_value());
      check_result(p, *found, most);
      const auto value = static_cast<std::int64_t>(found->scaled_objective(p.options));
      CHECK(value >= optimum);
      CHECK(value <= before);
      if (found->optimal) CHECK(value == optimum);
      before = value;
      result.add(value, optimum);
    }
  }
  return result;
}

void report(const char* name, const comparison& c) {
  MESSAGE(name << ": " << c.cases << " cases, " << c.equal << " optimal, mean ratio "
               << c.sum / static_cast<double>(c.cases) << ", worst " << c.worst);
}

}  // namespace

TEST_CASE("shape budget, longest first: the optimum of brute force") {
  const comparison c = compare(kind::shape_chain, 11, 1'500);
  report("longest first", c);
  CHECK(c.equal == c.cases);
}

TEST_CASE("shape budget, order of arrival: near the optimum of brute force") {
  const comparison c = compare(kind::arrival, 12, 1'000);
  report("arrival", c);
  CHECK(c.equal * 100 > c.cases * 95);
  CHECK(c.sum < 1.005 * static_cast<double>(c.cases));
  CHECK(c.worst < 1.5);
}

TEST_CASE("shape budget, two lengths: near the optimum of brute force") {
  const comparison c = compare(kind::two_lengths, 13, 1'000);
  report("two lengths", c);
  CHECK(c.equal * 100 > c.cases * 95);
  CHECK(c.sum < 1.005 * static_cast<double>(c.cases));
  CHECK(c.worst < 1.5);
}

TEST_CASE("shape budget: nothing to cut, one sample, and a sample that does not fit") {
  CHECK(problem{.samples = {}}.solve(1)->cuts.empty());
  problem one{.samples = of_inputs({10})};
  REQUIRE(one.solve(1).has_value());
  CHECK(one.solve(1)->shapes == std::vector<shape>{{1, 16, 0}});
  one.time.room = 15;
  CHECK_FALSE(one.solve(1).has_value());
}

TEST_CASE("shape budget: rows left over take samples of the next shape, by hand") {
  // Time: 10 + tokens; 16 tokens fit. One shape: two rows of 8, three times 26. Two shapes: the second time there is
  // room for a sample of 4, so one is left: 26 + 26 + 14.
  problem p{.samples = of_inputs({8, 8, 8, 4, 4})};
  p.shapes.padding_multiple = 4;
  p.time = {.fixed = 10, .room = 16};
  const std::optional<shape_budget_result> one = p.solve(1);
  REQUIRE(one.has_value());
  CHECK(one->shapes == std::vector<shape>{{2, 8, 0}});
  CHECK(one->cuts == std::vector<std::size_t>{0, 2, 4});
  CHECK(one->sum == nanoseconds{78});
  const std::optional<shape_budget_result> two = p.solve(2);
  REQUIRE(two.has_value());
  CHECK(two->shapes == std::vector<shape>{{2, 8, 0}, {1, 4, 0}});
  CHECK(two->cuts == std::vector<std::size_t>{0, 2, 4});
  CHECK(two->sum == nanoseconds{66});
  CHECK(two->optimal);
}

TEST_CASE("shape budget: equal samples may want two numbers of rows") {
  problem p{.samples = of_inputs({8, 8, 8, 8, 8})};
  p.time = {.fixed = 4, .room = 32};
  CHECK(p.solve(1)->sum == nanoseconds{2 * (4 + 24)});
  const std::optional<shape_budget_result> two = p.solve(2);
  CHECK(two->sum == nanoseconds{(4 + 32) + (4 + 8)});
  CHECK(two->sum.value() == two->lower_bound);
}

TEST_CASE("shape budget: out of order, a shape serves here and again there") {
  problem p{.samples = of_inputs({64, 8, 8, 64, 8, 8, 64})};
  p.time = {.fixed = 1, .room = 64};
  const std::optional<shape_budget_result> two = p.solve(2);
  REQUIRE(two.has_value());
  CHECK(two->shapes == std::vector<shape>{{1, 64, 0}, {2, 8, 0}});
  CHECK(two->shape_of == std::vector<std::uint32_t>{0, 1, 0, 1, 0});
}

TEST_CASE("shape budget: refusals say what to allow") {
  problem p{.samples = of_inputs({8, 16})};
  for (const std::int64_t most : {std::int64_t{0}, std::int64_t{-1}}) {
    try {
      (void)p.solve(most);
      FAIL("no refusal");
    } catch (const unsatisfiable& refused) {
      CHECK(refused.relax() == batch_constraint::shapes);
    }
  }
  // Long of input, long of target: no shape that fits holds both.
  problem apart{.samples = {{64, 8, 1}, {8, 64, 1}}};
  apart.time.room = 80;
  CHECK(apart.solve(2).has_value());
  try {
    (void)apart.solve(1);
    FAIL("no refusal");
  } catch (const unsatisfiable& refused) {
    CHECK(refused.relax() == batch_constraint::shapes);
  }
}

TEST_CASE("shape budget: with shapes enough it is the partition") {
  const std::uint64_t seed = 14;
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const problem p = random_problem(random, static_cast<kind>(round % 3), 1 + random() % 200);
    const std::optional<partition_result> free = partition(p.samples, p.shapes, p.time, p.options);
    const std::optional<shape_budget_result> found = p.solve(static_cast<std::int64_t>(p.samples.size()));
    REQUIRE(free.has_value());
    REQUIRE(found.has_value());
    check_result(p, *found, static_cast<std::int64_t>(p.samples.size()));
    CHECK(found->cuts == free->cuts);
    CHECK(found->optimal);
    CHECK(found->scaled_objective(p.options) == found->lower_bound);
  }
}

TEST_CASE("shape budget: the search for many samples, against the exact one") {
  const std::uint64_t seed = 15;
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  comparison all;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const problem p = random_problem(random, kind::shape_chain, 2 + random() % 60);
    std::vector<shape> alone;
    for (std::size_t i = 0; i < p.samples.size(); ++i)
      alone.push_back(p.padded(i));
    const price time = p.time;
    auto times = detail::times_of_runs<const price>::make(detail::runs_of(alone), time);
    REQUIRE(times.has_value());
    const detail::objective_weights weights = detail::weights_of(p.options);
    for (const std::size_t most : {1U, 2U, 3U, 5U, 8U}) {
      CAPTURE(most);
      detail::budget_exact exact{*times, most, weights};
      detail::limit_search{exact, weights}.run();
      const detail::chain_value optimum = times->judge(exact.best(), weights);
      const detail::shape_chain found = detail::best_budget_chain(*times, most, weights);
      CHECK(found.size() <= most);
      const detail::chain_value value = times->judge(found, weights);
      CHECK_FALSE(value.objective < optimum.objective);
      all.add(static_cast<std::int64_t>(value.objective), static_cast<std::int64_t>(optimum.objective));
    }
  }
  report("many samples' search", all);
  CHECK(all.equal * 100 > all.cases * 85);
  CHECK(all.sum < 1.002 * static_cast<double>(all.cases));
  CHECK(all.worst < 1.1);
}

TEST_CASE("shape budget: many samples, every kind, sound and never worse for more shapes") {
  const std::uint64_t seed = 16;
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 45; ++round) {
    CAPTURE(round);
    const problem p = random_problem(random, static_cast<kind>(round % 3), 65 + random() % 500);
    wide_int before = static_cast<wide_int>(never) * never;
    for (std::int64_t most = 1; most <= 9; ++most) {
      CAPTURE(most);
      const std::optional<shape_budget_result> found = p.solve(most);
      REQUIRE(found.has_value());
      check_result(p, *found, most);
      CHECK_FALSE(found->scaled_objective(p.options) > before);
      before = found->scaled_objective(p.options);
    }
  }
}
