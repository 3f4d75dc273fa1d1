#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/table.hpp>

#include "table_truth.hpp"

using namespace dynapipe;
using namespace table_truth;

namespace {

/// Checks that no shape of the box costs less than one that is a row or a token smaller, and how many are refused.
std::int64_t check_rising(const table_cost& cost, layer_kind kind, const shape& least, const shape& most) {
  std::int64_t refused = 0;
  std::map<std::array<std::int64_t, 2>, std::array<std::int64_t, 8>> below;
  for (std::int64_t r = least.rows; r <= most.rows; ++r)
    for (std::int64_t i = least.input; i <= most.input; ++i)
      for (std::int64_t t = least.target; t <= most.target; ++t) {
        const shape s{r, i, t};
        const auto now = every_cost(cost, kind, s);
        refused += now[0] == int64_limit ? 1 : 0;
        const auto check = [&](const std::array<std::int64_t, 8>& before) {
          for (std::size_t a = 0; a < now.size(); ++a)
            if (now[a] < before[a]) {
              CAPTURE(r);
              CAPTURE(i);
              CAPTURE(t);
              CAPTURE(a);
              FAIL("a cost falls from " << before[a] << " to " << now[a]);
            }
        };
        if (r > least.rows) check(below.at({i, t}));
        if (i > least.input) check(below.at({i - 1, t}));
        if (t > least.target) check(below.at({i, t - 1}));
        if (saturating_add(now[2], now[3]) < now[1]) FAIL("halves of a backward are less than it");
        if (now[5] > now[4] || now[6] < now[4]) FAIL("parts are more than the whole");
        below[{i, t}] = now;
      }
  return refused;
}

}  // namespace

TEST_CASE("table: with its option costs never fall, over a whole box, across the border of what was measured") {
  constexpr auto kind = layer_kind::decoder;
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    std::vector<shape> shapes = grid({1, 2, 3, 6, 12}, {16, 24, 40, 64, 100, 150}, 450);
    for (int k = 0; k < 4; ++k)
      shapes.erase(shapes.begin() + static_cast<std::ptrdiff_t>(random() % shapes.size()));
    for (const double by : {0.05, 0.3})
      for (const bool fails : {false, true}) {
        profile p = profile_of(kind, shapes, noisy_of(kind, seed, by));
        if (fails) {
          p.points.push_back({.kind = kind, .padded = {12, 64, 0}, .out_of_memory = true});
          p.points.push_back({.kind = kind, .padded = {5, 130, 0}, .out_of_memory = true});
        }
        for (const outside_policy outside : {outside_policy::error, outside_policy::fitted})
          for (const bool split : {false, true}) {
            if (!split)
              for (profile_point& point : p.points)
                point.weight = nanoseconds{0};
            const table_cost cost{
                p, fit_of(kind, split), {.outside = outside, .spike_percent = seed % 2 == 0 ? 10 : 0}};
            const std::int64_t refused = check_rising(cost, kind, {1, 10, 0}, {15, 180, 0});
            CHECK((refused > 0) == (fails || outside == outside_policy::error));
          }
      }
  }
}

TEST_CASE("table: with its option costs never fall along three axes") {
  constexpr auto kind = layer_kind::cross_decoder;
  for (const std::uint64_t seed : {1U, 2U}) {
    CAPTURE(seed);
    std::vector<shape> shapes;
    for (const std::int64_t r : {1, 2, 4})
      for (const std::int64_t input : {16, 24, 40})
        for (const std::int64_t target : {8, 12, 30})
          if (r * (input + target) <= 180) shapes.push_back({r, input, target});
    profile p = profile_of(kind, shapes, noisy_of(kind, seed, 0.25));
    p.points.push_back({.kind = kind, .padded = {4, 40, 12}, .out_of_memory = true});
    for (const outside_policy outside : {outside_policy::error, outside_policy::fitted}) {
      const table_cost cost{p, fit_of(kind), {.outside = outside}};
      CHECK(check_rising(cost, kind, {1, 12, 6}, {6, 48, 36}) > 0);
    }
  }
}
