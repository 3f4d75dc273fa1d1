#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/comm/order.hpp>
#include <dynapipe/schedule/bound.hpp>
#include <dynapipe/schedule/one_f_one_b.hpp>
#include <dynapipe/schedule/simulate.hpp>

#include "equal_problem.hpp"

using namespace dynapipe;

TEST_CASE("1f1b: equal micro-batches take (m + p - 1)(F + B), which is the lower bound, with min(m, p - s) in flight") {
  for (std::size_t stages = 1; stages <= 8; ++stages)
    for (std::size_t m = 1; m <= 20; ++m) {
      CAPTURE(stages);
      CAPTURE(m);
      const pipeline_problem p = test::equal_problem(stages, m, 3, 5);
      const program lists = order_transfers(p, one_f_one_b(p));
      const auto times = simulate(p, lists);
      REQUIRE(times.has_value());
      CHECK(times->makespan == nanoseconds{static_cast<std::int64_t>(m + stages - 1) * 8});
      CHECK(lower_bound(p) == times->makespan);
      for (std::size_t s = 0; s < stages; ++s)
        CHECK(test::most_in_flight(lists[s]) == std::min(m, stages - s));
    }
}

TEST_CASE("1f1b: the order of three micro-batches on two stages") {
  const pipeline_problem p = test::equal_problem(2, 3, 1, 2);
  const schedule orders = one_f_one_b(p);
  const auto forward = [](int m, int s) { return compute_pass{pass_kind::forward, micro_batch_id{m}, stage_id{s}}; };
  const auto backward = [](int m, int s) { return compute_pass{pass_kind::backward, micro_batch_id{m}, stage_id{s}}; };
  CHECK(orders[0] ==
        std::vector{forward(0, 0), forward(1, 0), backward(0, 0), forward(2, 0), backward(1, 0), backward(2, 0)});
  CHECK(orders[1] ==
        std::vector{forward(0, 1), backward(0, 1), forward(1, 1), backward(1, 1), forward(2, 1), backward(2, 1)});
}

TEST_CASE("1f1b: several stages on a device are refused") {
  pipeline_problem p = test::equal_problem(4, 2, 1, 2);
  p.devices = 2;
  p.capacity.resize(2);
  p.stage_device = {device_id{0}, device_id{1}, device_id{0}, device_id{1}};
  CHECK_THROWS_WITH_AS(one_f_one_b(p), "schedule '1f1b' needs one stage per device (use 'adaptive')", error);
}
