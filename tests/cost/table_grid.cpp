#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/table_grid.hpp>

using namespace dynapipe;
using namespace dynapipe::detail;

namespace {

constexpr std::int64_t one = std::int64_t{1} << weight_shift;

std::vector<std::int64_t> random_axis(std::mt19937_64& random, std::size_t most, int bits) {
  std::vector<std::int64_t> points(1 + random() % most);
  for (std::int64_t& p : points)
    p = 1 + static_cast<std::int64_t>(random() >> (64 - bits));
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

}  // namespace

TEST_CASE("table_grid: log2 is that of the standard library") {
  std::mt19937_64 random{1};
  const auto is_close = [](std::int64_t value) {
    return std::abs(static_cast<double>(log2_fixed(value)) / 0x1p16 - std::log2(static_cast<double>(value))) <= 0x1p-15;
  };
  for (std::int64_t value = 1; value <= 70'000; ++value)
    REQUIRE_MESSAGE(is_close(value), value);
  for (int k = 0; k < 100'000; ++k) {
    const auto value = static_cast<std::int64_t>(1 + (random() >> (2 + random() % 60)));
    REQUIRE_MESSAGE(is_close(value), value);
  }
  for (int whole = 0; whole < 62; ++whole)
    CHECK(log2_fixed(std::int64_t{1} << whole) == std::int64_t{whole} << 16);
  std::int64_t before = 0;
  for (std::int64_t value = 1; value <= 70'000; ++value) {
    REQUIRE(log2_fixed(value) >= before);
    before = log2_fixed(value);
  }
}

TEST_CASE("table_grid: an axis finds the points around a value") {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    for (int round = 0; round < 600; ++round) {
      const int bits = 2 + static_cast<int>(random() % 30);
      const std::vector<std::int64_t> points = random_axis(random, 40, bits);
      const table_axis axis{points};
      REQUIRE(axis.points() == points);
      for (int k = 0; k < 200; ++k) {
        std::int64_t value = 1 + static_cast<std::int64_t>(random() >> (64 - bits));
        if (k % 3 == 0) value = points[random() % points.size()] + static_cast<std::int64_t>(random() % 3) - 1;
        CAPTURE(value);
        const axis_place place = axis.find(value);
        if (value <= points.front()) {
          REQUIRE(place.at == 0);
          REQUIRE(place.weight == 0);
          REQUIRE(!place.beyond);
          continue;
        }
        if (value >= points.back()) {
          REQUIRE(place.at + 1 == points.size());
          REQUIRE(place.weight == 0);
          REQUIRE(place.beyond == (value > points.back()));
          continue;
        }
        REQUIRE(!place.beyond);
        REQUIRE(points[place.at] <= value);
        REQUIRE(value < points[place.at + 1]);
        REQUIRE((place.weight > 0) == (value > points[place.at]));
        const double low = static_cast<double>(points[place.at]);
        const double high = static_cast<double>(points[place.at + 1]);
        const double share = (static_cast<double>(value) - low) / (high - low);
        REQUIRE(std::abs(static_cast<double>(place.weight) / static_cast<double>(one) - share) <
                2e-6 + (high - low) / 0x1p40);
        const axis_place by_log = axis.find_by_log(value);
        REQUIRE(by_log.at == place.at);
        REQUIRE((by_log.weight >= 0 && by_log.weight <= one));
        const double width = std::log2(high) - std::log2(low);
        const double log_share = (std::log2(static_cast<double>(value)) - std::log2(low)) / width;
        REQUIRE(std::abs(static_cast<double>(by_log.weight) / static_cast<double>(one) - log_share) <
                0x1p-14 / width + 4e-6);
      }
    }
  }
}

TEST_CASE("table_grid: a refined axis keeps its points and leaves no wide gap") {
  std::mt19937_64 random{7};
  for (int round = 0; round < 400; ++round) {
    const std::vector<std::int64_t> points = random_axis(random, 20, 2 + static_cast<int>(random() % 14));
    const std::vector<std::int64_t> finer = table_axis{points}.refined().points();
    REQUIRE(std::adjacent_find(finer.begin(), finer.end(), std::greater_equal<>{}) == finer.end());
    REQUIRE(std::includes(finer.begin(), finer.end(), points.begin(), points.end()));
    REQUIRE(finer.front() == points.front());
    REQUIRE(finer.back() == points.back());
    REQUIRE(finer.size() <= 64 * points.size());
    for (std::size_t i = 0; i + 1 < finer.size(); ++i) {
      const auto above = std::upper_bound(points.begin(), points.end(), finer[i]);
      const std::int64_t low = *(above - 1);
      const std::int64_t gap = *above - low;
      REQUIRE((finer[i + 1] - finer[i] <= 1 + low / 4 || finer[i + 1] - finer[i] <= 1 + gap / 64));
    }
  }
  CHECK(table_axis{{64, 128, 256}}.refined().points() ==
        std::vector<std::int64_t>{64, 80, 96, 112, 128, 160, 192, 224, 256});
  CHECK(table_axis{{5}}.refined().points() == std::vector<std::int64_t>{5});
}

TEST_CASE("table_grid: values between nodes, neighbours and points") {
  const table_grid grid{{table_axis{{1, 3}}, table_axis{{10, 20, 40}}, table_axis{{100, 200}}}};
  REQUIRE(grid.nodes() == 12);
  std::vector<std::int64_t> values(grid.nodes());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto [r, q, k] = grid.point(i);
    CHECK(grid.node(grid.find({r, q, k})) == i);
    CHECK(grid.upper_node(grid.find({r, q, k})) == i);
    values[i] = 1'000'000 * r + 2'000 * q + 30 * k;
  }
  for (std::int64_t r = 1; r <= 3; ++r)
    for (std::int64_t q = 10; q <= 40; ++q)
      for (std::int64_t k = 100; k <= 200; ++k) {
        const std::int64_t expected = 1'000'000 * r + 2'000 * q + 30 * k;
        const std::int64_t got = grid.between(values, grid.find({r, q, k}));
        REQUIRE(got <= expected);
        REQUIRE(got >= expected - 4);
      }
  CHECK(grid.upper_node(grid.find({2, 21, 150})) == grid.nodes() - 1);
  CHECK(grid.upper_node(grid.find({1, 20, 100})) == grid.node(grid.find({1, 20, 100})));

  std::vector<std::pair<grid_point, grid_point>> steps;
  for (const bool rising : {true, false})
    grid.for_each_step(rising, [&](std::size_t i, std::size_t n) {
      const grid_point low = grid.point(rising ? n : i);
      const grid_point high = grid.point(rising ? i : n);
      CHECK(dominates(high, low));
      CHECK((low[0] != high[0]) + (low[1] != high[1]) + (low[2] != high[2]) == 1);
      steps.emplace_back(low, high);
    });
  // Each way: 1 x 3 x 2 along rows, 2 x 2 x 2 along queries, 2 x 3 x 1 along keys.
  CHECK(steps.size() == 2 * (6 + 8 + 6));
  std::sort(steps.begin(), steps.end());
  for (std::size_t i = 0; i + 1 < steps.size(); i += 2)
    CHECK(steps[i] == steps[i + 1]);
}
