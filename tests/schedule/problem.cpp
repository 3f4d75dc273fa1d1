#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/schedule/problem.hpp>

#include "equal_problem.hpp"
#include "random_problem.hpp"
#include "reference.hpp"

using namespace dynapipe;

TEST_CASE("memory_alone: two stages by hand") {
  pipeline_problem p = test::equal_problem(2, 1, 1, 1);
  p.cost[0] = {.stored = bytes{100}, .forward_peak = bytes{150}, .backward_peak = bytes{30}};
  p.cost[1] = {.stored = bytes{10}, .forward_peak = bytes{20}, .backward_peak = bytes{500}};
  p.hops[0] = {bytes{7}, nanoseconds{0}, bytes{9}, nanoseconds{0}};
  p.loads = {bytes{3}, bytes{2}};
  // Device 0: forward 3 + 7 + 150; backward 3 + 100 + 9 + 30. Device 1: backward 7 + 2 + 10 + 9 + 500.
  CHECK(memory_alone(p, 0) == std::vector{bytes{160}, bytes{528}});

  // Both stages on one device: the forward of stage 1 finds 3 + 100 + 7 held, its backward 3 + 100 + 7 + 2 + 10.
  p.devices = 1;
  p.stage_device = {device_id{0}, device_id{0}};
  CHECK(memory_alone(p, 0) == std::vector{bytes{3 + 100 + 7 + 2 + 10 + 9 + 500}});
}

TEST_CASE("memory_alone: exactly what a search over all orders needs for one micro-batch") {
  for (std::uint64_t i = 0; i < 500; ++i) {
    CAPTURE(i);
    test::random_source random{900 + i};
    pipeline_problem p = test::random_problem(random, {.stages = 8, .micro_batches = 1});
    p.capacity = memory_alone(p, 0);
    CHECK(test::some_order_fits(p));
    for (bytes& capacity : p.capacity) {
      if (capacity == bytes{0}) continue;
      capacity -= bytes{1};
      CHECK_FALSE(test::some_order_fits(p));
      capacity += bytes{1};
    }
  }
}

TEST_CASE("memory_alone: costs beyond measure do not overflow") {
  pipeline_problem p = test::equal_problem(2, 1, 1, 1);
  const bytes most = bytes::max();
  for (stage_cost& cost : p.cost)
    cost = {.stored = most, .forward_peak = most, .backward_peak = most};
  p.hops[0] = {most, nanoseconds{0}, most, nanoseconds{0}};
  p.loads = {most, most};
  CHECK(memory_alone(p, 0) == std::vector{most, most});
  CHECK_THROWS_AS(require_feasible(p), infeasible);
}
