#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/partition_bound.hpp>
#include <dynapipe/batch/partition_frontier.hpp>

using namespace dynapipe;

namespace {

struct price {
  std::int64_t fixed = 0;
  std::int64_t linear = 1;
  std::int64_t square = 0;
  std::int64_t least = 0;
  std::int64_t room = 0;

  std::optional<nanoseconds> operator()(const shape& s) const {
    const std::int64_t tokens = s.rows * (s.input + s.target);
    if (tokens > room) return std::nullopt;
    return nanoseconds{
        std::max(least, fixed + linear * tokens + square * s.rows * (s.input * s.input + s.target * s.target))};
  }
};

struct drawn {
  std::vector<sample_lengths> samples;
  price time;
  partition_options options;
};

drawn draw(std::mt19937_64& random, std::size_t samples, bool two_lengths) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  drawn d;
  const std::int64_t longest = 2 + below(60);
  for (std::size_t i = 0; i < samples; ++i)
    d.samples.push_back({1 + below(longest), two_lengths ? 1 + below(longest) : 0, 1});
  if (!two_lengths)
    std::sort(d.samples.begin(), d.samples.end(), [](const auto& a, const auto& b) { return a.input > b.input; });
  d.time = {.fixed = below(200), .linear = 1 + below(4), .square = below(2), .least = below(3) * below(200)};
  d.time.room = longest * (two_lengths ? 2 : 1) + below(longest * 8);
  d.options = {.devices = 1 + below(8), .replicas = 1 + below(4), .stages_per_device = 1 + below(2)};
  return d;
}

constexpr shape_options unpadded{.padding_multiple = 1};

wide_int objective_of(const drawn& d, std::int64_t t_max, std::int64_t sum) {
  return wide_int{d.options.devices - 1} * d.options.replicas * t_max + wide_int{d.options.stages_per_device} * sum;
}

/// The least objective over all ways to put samples together, in any order.
std::optional<wide_int> best_of_all_sets(const drawn& d) {
  std::vector<shape> groups;
  std::optional<wide_int> best;
  const auto place = [&](const auto& self, std::size_t i) -> void {
    if (i == d.samples.size()) {
      std::int64_t t_max = 0;
      std::int64_t sum = 0;
      for (const shape& g : groups) {
        const std::optional<nanoseconds> t = d.time(g);
        if (!t) return;
        t_max = std::max(t_max, t->value());
        sum += t->value();
      }
      const wide_int value = objective_of(d, t_max, sum);
      if (!best || value < *best) best = value;
      return;
    }
    const sample_lengths& s = d.samples[i];
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const shape before = groups[g];
      groups[g] = {before.rows + 1, std::max(before.input, s.input), std::max(before.target, s.target)};
      self(self, i + 1);
      groups[g] = before;
    }
    groups.push_back({1, s.input, s.target});
    self(self, i + 1);
    groups.pop_back();
  };
  place(place, 0);
  return best;
}

}  // namespace

TEST_CASE("no way to put samples together is below the bound, and for one length none is below the partition") {
  constexpr unsigned seed = 606;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  double ratios = 0;
  int counted = 0;
  for (int round = 0; round < 1'200; ++round) {
    CAPTURE(round);
    const bool two_lengths = round % 3 == 0;
    drawn d = draw(random, 1 + random() % 7, two_lengths);
    d.options.convex_rows = round % 2 == 0;
    const std::optional<wide_int> best = best_of_all_sets(d);
    const std::optional<wide_int> bound = partition_bound(d.samples, unpadded, d.time, d.options);
    REQUIRE(bound.has_value() == best.has_value());
    if (!best) continue;
    REQUIRE(*bound <= *best);
    REQUIRE(*bound > 0);
    if (!two_lengths) REQUIRE(partition(d.samples, unpadded, d.time, d.options)->scaled_objective(d.options) == *best);
    ratios += static_cast<double>(*bound) / static_cast<double>(*best);
    ++counted;
  }
  MESSAGE("bound over optimum, mean: ", (ratios / counted));
  CHECK(ratios / counted > 0.8);
}

TEST_CASE("the bound is exact where samples are equal and divide evenly") {
  const std::vector<sample_lengths> samples(12, {100, 0, 100});
  const price time{.fixed = 50, .linear = 1, .room = 400};
  const partition_options options{.devices = 1, .replicas = 3};
  CHECK(*partition_bound(samples, unpadded, time, options) ==
        partition(samples, unpadded, time, options)->scaled_objective(options));
  CHECK_FALSE(partition_bound(std::vector<sample_lengths>{{401, 0, 1}}, unpadded, time, options).has_value());
}

TEST_CASE("a frontier: the best is in it, none is dominated, each has the least sum of its slowest time") {
  constexpr unsigned seed = 707;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  std::size_t several = 0;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    drawn d = draw(random, 1 + random() % 40, round % 3 == 0);
    d.options.convex_rows = round % 2 == 0;
    const auto best = partition(d.samples, unpadded, d.time, d.options);
    const auto frontier = partition_frontier(d.samples, unpadded, d.time, d.options, 12, 20);
    REQUIRE(best.has_value() == frontier.has_value());
    if (!best) continue;
    REQUIRE_FALSE(frontier->empty());
    several += frontier->size() > 1 ? 1 : 0;
    const wide_int least = best->scaled_objective(d.options);
    bool met = false;
    for (std::size_t k = 0; k < frontier->size(); ++k) {
      const partition_result& now = (*frontier)[k];
      if (k > 0) {
        REQUIRE(now.t_max > (*frontier)[k - 1].t_max);
        REQUIRE(now.sum < (*frontier)[k - 1].sum);
      }
      REQUIRE(now.scaled_objective(d.options) <= least + least / 5);
      met = met || (now.scaled_objective(d.options) == least && now.cuts == best->cuts);
      // Its times are those of its cut, and no cut within its t_max has less.
      std::int64_t t_max = 0;
      std::int64_t sum = 0;
      for (std::size_t m = 0; m < now.cuts.size(); ++m) {
        const std::size_t end = m + 1 < now.cuts.size() ? now.cuts[m + 1] : d.samples.size();
        shape s{static_cast<std::int64_t>(end - now.cuts[m]), 0, 0};
        for (std::size_t i = now.cuts[m]; i < end; ++i)
          s = {s.rows, std::max(s.input, d.samples[i].input), std::max(s.target, d.samples[i].target)};
        REQUIRE(d.time(s).has_value());
        t_max = std::max(t_max, d.time(s)->value());
        sum += d.time(s)->value();
      }
      REQUIRE(t_max == now.t_max.value());
      REQUIRE(sum == now.sum.value());
      const auto within = [&](const shape& s) -> std::optional<nanoseconds> {
        const std::optional<nanoseconds> t = d.time(s);
        return t && *t <= now.t_max ? t : std::nullopt;
      };
      REQUIRE(partition(d.samples, unpadded, within, {.devices = 1})->sum == now.sum);
    }
    REQUIRE(met);
  }
  CHECK(several > 100);
}

TEST_CASE("a number of micro-batches that is a multiple: near the best of such cuts, refused with too few samples") {
  constexpr unsigned seed = 808;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  double ratios = 0;
  double worst = 1;
  int counted = 0;
  for (int round = 0; round < 1'000; ++round) {
    CAPTURE(round);
    drawn d = draw(random, 1 + random() % 10, round % 3 == 0);
    d.options.convex_rows = round % 2 == 0;
    d.options.count_multiple = 2 + static_cast<std::int64_t>(random() % 3);
    const auto multiple = static_cast<std::size_t>(d.options.count_multiple);
    std::optional<wide_int> best;
    for (std::uint64_t borders = 0; borders < std::uint64_t{1} << (d.samples.size() - 1); ++borders) {
      std::int64_t t_max = 0;
      std::int64_t sum = 0;
      std::size_t count = 0;
      bool fits = true;
      shape s;
      for (std::size_t i = 0; i < d.samples.size() && fits; ++i) {
        s = {s.rows + 1, std::max(s.input, d.samples[i].input), std::max(s.target, d.samples[i].target)};
        if (i + 1 < d.samples.size() && (borders >> i & 1U) == 0) continue;
        const std::optional<nanoseconds> t = d.time(s);
        fits = t.has_value();
        if (!t) break;
        t_max = std::max(t_max, t->value());
        sum += t->value();
        ++count;
        s = {};
      }
      if (!fits || count % multiple != 0) continue;
      const wide_int value = objective_of(d, t_max, sum);
      if (!best || value < *best) best = value;
    }
    std::optional<partition_result> found;
    try {
      found = partition(d.samples, unpadded, d.time, d.options);
    } catch (const unsatisfiable& refusal) {
      CHECK(refusal.relax() == batch_constraint::count_multiple);
    }
    // A refusal stands for the cut of least objective: a coarser one of the right number may exist.
    if (!found) continue;
    REQUIRE(best.has_value());
    REQUIRE(found->cuts.size() % multiple == 0);
    const double ratio = static_cast<double>(found->scaled_objective(d.options)) / static_cast<double>(*best);
    REQUIRE(ratio >= 1);
    ratios += ratio;
    worst = std::max(worst, ratio);
    ++counted;
  }
  MESSAGE("over the best of such cuts: mean ", (ratios / counted), ", worst ", worst, ", of ", counted);
  CHECK(counted > 500);
  CHECK(ratios / counted < 1.06);
}
