#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/published.hpp>

using namespace dynapipe;

namespace {

/// Two layers a stage. Forward of one layer: fixed + linear * n * x + square * n * x^2, backward twice that; the head
/// 3 * head * n * y once. x, y: tokens as `of` says. Nanoseconds; more than `most` tokens n * x do not fit.
struct layer_price {
  std::int64_t fixed = 10'000'000;
  std::int64_t linear = 10'000;
  std::int64_t square = 10;
  std::int64_t head = 2'000;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();

  [[nodiscard]] std::int64_t side(std::int64_t n, std::int64_t x) const {
    return 6 * (fixed + linear * n * x + square * n * x * x);
  }
  std::optional<nanoseconds> operator()(const shape& s) const {
    const std::int64_t decoder = s.target > 0 ? s.target + s.input / 2 : 0;
    if (s.rows * std::max(s.input, decoder) > most) return std::nullopt;
    const std::int64_t head_time = 3 * head * s.rows * (s.target > 0 ? s.target : s.input);
    if (s.target == 0) return nanoseconds{side(s.rows, s.input) + head_time};
    return nanoseconds{std::max(side(s.rows, s.input), side(s.rows, decoder) + head_time)};
  }
};

std::vector<sample_lengths> inputs(const std::vector<std::int64_t>& lengths) {
  std::vector<sample_lengths> samples;
  for (const std::int64_t length : lengths)
    samples.push_back({length, 0, 0});
  return samples;
}

const std::vector<std::int64_t> sixteen{397, 343, 289, 260, 235, 155, 85, 83, 81, 62, 60, 30, 27, 24, 13, 9};

/// What the published program answers, in milliseconds.
struct answer {
  double objective;
  double t_max;
  double sum;
};

void check_answer(const std::optional<published_cut>& found, const partition_options& options, const answer& wanted) {
  REQUIRE(found.has_value());
  const double scale = 1e6 * static_cast<double>(options.stages_per_device * options.replicas);
  CHECK(static_cast<double>(found->reported_objective(options)) / scale ==
        doctest::Approx(wanted.objective).epsilon(1e-6));
  CHECK(static_cast<double>(found->candidate.value()) / 1e6 == doctest::Approx(wanted.t_max).epsilon(1e-6));
  CHECK(static_cast<double>(found->cut.sum.value()) / 1e6 == doctest::Approx(wanted.sum).epsilon(1e-6));
}

}  // namespace

TEST_CASE("the published partition answers as the published program does") {
  SUBCASE("milliseconds: the grid costs 2.5 %") {
    const partition_options options{.devices = 4};
    const auto found = published_partition(inputs(sixteen), {}, layer_price{}, options);
    check_answer(found, options, {858.904296875, 132.0, 462.904296875});
  }
  SUBCASE("microseconds: all candidates kept, the optimum") {
    const partition_options options{.devices = 4};
    const auto found = published_partition(inputs(sixteen), {}, layer_price{}, options, nanoseconds{5'000});
    check_answer(found, options, {837.603875, 124.81728125, 463.15203125});
    CHECK(found->cut.cuts == std::vector<std::size_t>{0, 1, 3, 6});
  }
  SUBCASE("seconds: refused, though it fits") {
    const nanoseconds five_seconds{5'000'000'000};
    CHECK_FALSE(published_partition(inputs(sixteen), {}, layer_price{}, {.devices = 4}, five_seconds).has_value());
  }
  SUBCASE("three fast samples: the longest fits no candidate") {
    const layer_price fast{.fixed = 0, .linear = 1'000, .square = 0, .head = 0, .most = 1'100};
    const std::vector<sample_lengths> three = inputs({1'000, 990, 984});
    CHECK_FALSE(published_partition(three, {}, fast, {.devices = 4}).has_value());
    const auto exact = published_partition(three, {}, fast, {.devices = 4}, nanoseconds{0});
    REQUIRE(exact.has_value());
    CHECK(exact->reported_objective({.devices = 4}) == 35'856'000);
  }
  SUBCASE("memory") {
    const std::vector<sample_lengths> samples = inputs(
        {300, 300, 300, 228, 184, 159, 135, 125, 113, 93, 91, 76, 58, 54, 52, 50, 46, 42, 41, 35, 28, 26, 23, 15});
    const partition_options options{.devices = 4};
    check_answer(published_partition(samples, {}, layer_price{.most = 1'200}, options), options,
                 {892.627197265625, 115.62431335449219, 545.7542724609375});
    CHECK_FALSE(published_partition(samples, {}, layer_price{.most = 300}, options).has_value());
  }
  SUBCASE("unsorted") {
    const std::vector<sample_lengths> samples =
        inputs({399, 542, 8,   634, 158, 68,  161, 57,  108, 217, 435, 35, 67, 849, 76,  189, 128,
                67,  14,  221, 142, 104, 323, 746, 510, 153, 426, 78,  58, 20, 287, 146, 746});
    const partition_options options{.devices = 4};
    check_answer(published_partition(samples, {}, layer_price{.most = 5'000}, options), options,
                 {2395.56640625, 172.4121551513672, 1878.330078125});
  }
  SUBCASE("two lengths, replicas") {
    const std::vector<std::vector<std::int64_t>> pairs{{739, 24}, {343, 27}, {314, 27}, {311, 2},  {298, 11}, {200, 7},
                                                       {188, 19}, {187, 45}, {182, 37}, {146, 18}, {127, 12}, {116, 59},
                                                       {116, 1},  {89, 21},  {82, 11},  {81, 19},  {67, 6},   {65, 2},
                                                       {52, 13},  {46, 53},  {37, 7},   {21, 15},  {19, 30},  {13, 13}};
    std::vector<sample_lengths> samples;
    for (const auto& pair : pairs)
      samples.push_back({pair[0], pair[1] + 2, 0});
    const partition_options options{.devices = 4, .replicas = 2};
    check_answer(published_partition(samples, {}, layer_price{.most = 2'000}, options), options,
                 {775.5657348632812, 138.7190399169922, 718.8172607421875});
  }
  SUBCASE("equal samples") {
    const partition_options options{.devices = 8, .replicas = 4};
    const auto found = published_partition(inputs(std::vector<std::int64_t>(12, 128)), {}, layer_price{}, options);
    check_answer(found, options, {670.3277587890625, 78.8620834350586, 473.1725158691406});
    CHECK(found->cut.cuts == std::vector<std::size_t>{0, 2, 4, 6, 8, 10});
  }
}

TEST_CASE("published: nothing to cut, and by ranges") {
  CHECK(published_partition({}, {}, layer_price{}, {})->cut.cuts.empty());
  const auto time = [](std::size_t first, std::size_t count) -> std::optional<nanoseconds> {
    if (first + count > 3 && count > 1) return std::nullopt;
    return nanoseconds{10 + static_cast<std::int64_t>(count)};
  };
  // The fourth sample stands alone; the others together 13, against 11 + 12 or 3 * 11.
  const auto found = published_partition(std::size_t{4}, time, {.devices = 1}, nanoseconds{0});
  REQUIRE(found.has_value());
  CHECK(found->cut.cuts == std::vector<std::size_t>{0, 3});
  CHECK(found->cut.t_max == nanoseconds{13});
  CHECK(found->candidates == 3);
  // One and two, or two and one: of equal sums the smallest last cut.
  const auto pairs = [](std::size_t, std::size_t count) -> std::optional<nanoseconds> {
    return count > 2 ? std::nullopt : std::optional{nanoseconds{count == 1 ? 10 : 15}};
  };
  CHECK(published_partition(std::size_t{3}, pairs, {.devices = 1}, nanoseconds{0})->cut.cuts ==
        std::vector<std::size_t>{0, 1});
}

TEST_CASE("published: never below the optimum over all cuts, equal to it without a grid") {
  constexpr unsigned seed = 4'711;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  int worse = 0;
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    std::vector<sample_lengths> samples(1 + random() % 9);
    for (sample_lengths& s : samples)
      s = {1 + static_cast<std::int64_t>(random() % 300), static_cast<std::int64_t>(random() % 2 * (random() % 50)), 0};
    const layer_price price{.fixed = static_cast<std::int64_t>(random() % 3'000'000),
                            .most = 400 + static_cast<std::int64_t>(random() % 2'000)};
    const partition_options options{1 + static_cast<std::int64_t>(random() % 6),
                                    1 + static_cast<std::int64_t>(random() % 3), 1};
    const auto time_of = [&](std::size_t from, std::size_t to) {
      shape s{static_cast<std::int64_t>(to - from), 0, 0};
      for (std::size_t i = from; i < to; ++i) {
        s.input = std::max(s.input, (samples[i].input + 7) / 8 * 8);
        s.target = std::max(s.target, (samples[i].target + 7) / 8 * 8);
      }
      return price(s);
    };
    std::int64_t best = -1;
    for (std::uint64_t borders = 0; borders < std::uint64_t{1} << (samples.size() - 1); ++borders) {
      std::int64_t t_max = 0;
      std::int64_t sum = 0;
      bool fits = true;
      std::size_t from = 0;
      for (std::size_t i = 1; i <= samples.size() && fits; ++i) {
        if (i < samples.size() && (borders >> (i - 1) & 1U) == 0) continue;
        const std::optional<nanoseconds> t = time_of(from, i);
        fits = t.has_value();
        if (!fits) break;
        t_max = std::max(t_max, t->value());
        sum += t->value();
        from = i;
      }
      const std::int64_t objective = (options.devices - 1) * options.replicas * t_max + sum;
      if (fits && (best < 0 || objective < best)) best = objective;
    }
    const auto exact = published_partition(samples, {}, price, options, nanoseconds{0});
    REQUIRE(exact.has_value() == (best >= 0));
    if (best < 0) continue;
    REQUIRE(exact->reported_objective(options) == best);
    REQUIRE(exact->cut.scaled_objective(options) == best);
    const auto coarse = published_partition(samples, {}, price, options);
    refused += coarse ? 0 : 1;
    if (!coarse) continue;
    REQUIRE(coarse->cut.scaled_objective(options) >= best);
    REQUIRE(coarse->reported_objective(options) >= coarse->cut.scaled_objective(options));
    REQUIRE(coarse->candidates <= exact->candidates);
    worse += coarse->cut.scaled_objective(options) > best ? 1 : 0;
  }
  MESSAGE("worse: ", worse, ", refused though feasible: ", refused);
  CHECK(worse > 20);
  CHECK(refused > 0);
}
