#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include <dynapipe/schedule/adaptive.hpp>
#include <dynapipe/schedule/bound.hpp>
#include <dynapipe/schedule/simulate.hpp>

#include "equal_problem.hpp"
#include "random_problem.hpp"

using namespace dynapipe;

TEST_CASE("adaptive: equal micro-batches with room for them reach the lower bound") {
  for (std::size_t stages = 1; stages <= 8; ++stages)
    for (std::size_t m = 1; m <= 20; ++m) {
      CAPTURE(stages);
      CAPTURE(m);
      const pipeline_problem p = test::equal_problem(stages, m, 3, 5);
      CHECK(simulate(p, adaptive(p))->makespan == lower_bound(p));
    }
}

TEST_CASE("adaptive: memory for k micro-batches keeps k in flight, down to one after another") {
  for (std::int64_t k = 1; k <= 4; ++k) {
    const pipeline_problem p = test::equal_problem(4, 6, 1, 2, bytes{10}, bytes{10 * k});
    const program lists = adaptive(p);
    CHECK(test::most_in_flight(lists[0]) == static_cast<std::size_t>(k));
    const nanoseconds makespan = simulate(p, lists)->makespan;
    if (k == 1) CHECK(makespan == nanoseconds{72});
    if (k == 4) CHECK(makespan == lower_bound(p));
  }
}

TEST_CASE("adaptive: one byte short is a refusal with the numbers in it") {
  const pipeline_problem p = test::equal_problem(3, 2, 1, 2, bytes{10}, bytes{9});
  try {
    static_cast<void>(adaptive(p));
    FAIL("it was planned");
  } catch (const infeasible& refusal) {
    CHECK(refusal.needed() == bytes{10});
    CHECK(refusal.available() == bytes{9});
    CHECK(std::string{refusal.what()} ==
          "micro-batch 0 needs 10 bytes on device 0 beside the model's state, there are 9");
  }
}

TEST_CASE("adaptive: injection follows the order asked for") {
  const pipeline_problem p = test::equal_problem(2, 3, 1, 2);
  const std::array order{micro_batch_id{2}, micro_batch_id{0}, micro_batch_id{1}};
  const program lists = adaptive(p, order);
  std::size_t next = 0;
  for (const program_step& step : lists[0])
    if (step.what == program_step::action::forward) CHECK(step.mb == order[next++]);
  CHECK(next == 3);
}

TEST_CASE("adaptive: equal problems give equal programs") {
  for (std::uint64_t i = 0; i < 50; ++i) {
    test::random_source a{i}, b{i};
    pipeline_problem p = test::random_problem(a), q = test::random_problem(b);
    p.capacity.assign(p.devices, bytes{2'000});
    q.capacity = p.capacity;
    CHECK(adaptive(p) == adaptive(q));
  }
}

TEST_CASE("adaptive: an empty pipeline is an empty program") {
  const pipeline_problem p = test::equal_problem(2, 0, 1, 1);
  CHECK(adaptive(p) == program(2));
  CHECK(simulate(p, program(2))->makespan == nanoseconds{0});
  CHECK(lower_bound(p) == nanoseconds{0});
}
