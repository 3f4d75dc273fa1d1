#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <doctest/doctest.h>

#include <dynapipe/comm/certify.hpp>
#include <dynapipe/comm/order.hpp>
#include <dynapipe/schedule/adaptive.hpp>
#include <dynapipe/schedule/one_f_one_b.hpp>
#include <dynapipe/schedule/simulate.hpp>

#include "../schedule/equal_problem.hpp"
#include "../schedule/random_problem.hpp"

using namespace dynapipe;

TEST_CASE("order_transfers: with a queue for each direction nothing is lost against pure delays") {
  // A queue for each direction keeps two messages of one edge apart; where they never meet, overlap is complete.
  for (std::size_t stages = 2; stages <= 6; ++stages)
    for (std::size_t m = 1; m <= 12; ++m) {
      CAPTURE(stages);
      CAPTURE(m);
      pipeline_problem p = test::equal_problem(stages, m, 30, 60);
      for (hop_cost& hop : p.hops)
        hop = {bytes{1}, nanoseconds{7}, bytes{1}, nanoseconds{7}};
      const program lists = order_transfers(p, one_f_one_b(p));
      const std::optional<timeline> queued = simulate(p, lists);
      REQUIRE(queued.has_value());
      p.queues = std::nullopt;
      CHECK(queued->makespan == simulate(p, lists)->makespan);
    }
}

TEST_CASE("order_transfers: a receive stands before the computation that it overlaps with") {
  // Device 1 computes the long forward of micro-batch 0 while micro-batch 1 arrives.
  pipeline_problem p = test::equal_problem(2, 2, 10, 10);
  p.cost[1].forward = nanoseconds{100};
  for (hop_cost& hop : p.hops)
    hop.forward = nanoseconds{5};
  const program lists = order_transfers(p, one_f_one_b(p));
  std::size_t receive = 0, forward = 0;
  for (std::size_t i = 0; i < lists[1].size(); ++i) {
    if (lists[1][i].what == program_step::action::recv && lists[1][i].mb == micro_batch_id{1}) receive = i;
    if (lists[1][i].what == program_step::action::forward && lists[1][i].mb == micro_batch_id{0}) forward = i;
  }
  CHECK(receive < forward);
}

TEST_CASE("order_transfers: orders that do not fit are refused with the device and its bytes") {
  const pipeline_problem p = test::equal_problem(3, 3, 1, 2, bytes{10}, bytes{20});
  CHECK_THROWS_WITH_AS(static_cast<void>(order_transfers(p, one_f_one_b(p))),
                       "this order of operations needs 30 bytes on device 0 beside the model's state, there are 20 "
                       "(schedule 'adaptive' adapts to the memory)",
                       infeasible);
}

TEST_CASE("order_transfers: orders that wait for each other are an error") {
  const pipeline_problem p = test::equal_problem(2, 2, 1, 2);
  schedule orders = one_f_one_b(p);
  std::swap(orders[1][0], orders[1][1]);  // a backward before its forward
  CHECK_THROWS_AS(static_cast<void>(order_transfers(p, orders)), error);
}

TEST_CASE("certify: dropping or swapping transfers is found") {
  int dropped = 0, swapped = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    test::random_source random{7'000 + i};
    pipeline_problem p = test::random_problem(random, {.stages = 4, .micro_batches = 5});
    p.capacity.assign(p.devices, gib(1));
    const program lists = adaptive(p);
    CHECK(certify(p, lists).accepted);
    const auto d = static_cast<std::size_t>(random.from(0, static_cast<std::int64_t>(p.devices) - 1));
    for (std::size_t k = 0; k + 1 < lists[d].size(); ++k) {
      if (lists[d][k].what != program_step::action::recv) continue;
      program broken = lists;
      broken[d].erase(broken[d].begin() + static_cast<std::ptrdiff_t>(k));
      const deadlock_report report = certify(p, broken);
      CHECK_FALSE(report.accepted);
      CHECK_FALSE(simulate(p, broken).has_value());
      ++dropped;
      for (std::size_t j = k + 1; j < lists[d].size(); ++j) {
        if (lists[d][j].what != program_step::action::recv) continue;
        program crossed = lists;
        std::swap(crossed[d][k], crossed[d][j]);
        CHECK(certify(p, crossed).accepted == simulate(p, crossed).has_value());
        ++swapped;
        break;
      }
      break;
    }
  }
  CHECK(dropped > 50);
  CHECK(swapped > 50);
}
