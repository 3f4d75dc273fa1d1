#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/comm/order.hpp>
#include <dynapipe/plan/lower.hpp>
#include <dynapipe/plan/plan.hpp>
#include <dynapipe/schedule/one_f_one_b.hpp>
#include <dynapipe/schedule/simulate.hpp>

#include "../schedule/equal_problem.hpp"

using namespace dynapipe;

namespace {

/// A device's instructions in one line: operation, micro-batch, inputs > output.
std::string words(const device_plan& device) {
  std::string out;
  for (const instruction& i : device.instructions) {
    out += (out.empty() ? "" : "; ") + std::string{to_string(i.op)};
    if (i.op != opcode::free) out += " m" + std::to_string(index(i.mb));
    for (const buffer_id b : i.in)
      out += " " + std::to_string(index(b));
    if (i.out != buffer_id::none) out += " > " + std::to_string(index(i.out));
    if (i.grads_ready) out += " ready";
  }
  return out;
}

}  // namespace

TEST_CASE("lower: one micro-batch on two devices, and its memory by hand") {
  pipeline_problem p = test::equal_problem(2, 1, 10, 20);
  p.cost[0] = {.forward = nanoseconds{10},
               .backward = nanoseconds{20},
               .stored = bytes{100},
               .forward_peak = bytes{150},
               .backward_peak = bytes{30}};
  p.cost[1] = {.forward = nanoseconds{10},
               .backward = nanoseconds{20},
               .stored = bytes{10},
               .forward_peak = bytes{20},
               .backward_peak = bytes{500}};
  p.hops[0] = {bytes{7}, nanoseconds{1}, bytes{9}, nanoseconds{1}};
  p.loads = {bytes{3}, bytes{2}};
  p.capacity = {bytes{200}, bytes{600}};
  const program lists = order_transfers(p, one_f_one_b(p));
  const std::optional<timeline> times = simulate(p, lists);
  REQUIRE(times.has_value());
  const std::vector<device_plan> devices = lower(p, lists, *times, {bytes{1000}, bytes{2000}});
  CHECK(words(devices[0]) ==
        "load m0 > 0; forward m0 0 > 1; send m0 > 1; wait_send m0; free 1; recv m0 > 2; wait_recv m0; backward m0 2 "
        "ready; free 0 2");
  CHECK(words(devices[1]) ==
        "recv m0 > 0; wait_recv m0; load m0 > 1; forward m0 0 1; backward m0 > 2 ready; free 1 0; send m0 > 2; "
        "wait_send m0; free 2");
  CHECK(devices[0].capacity == bytes{1200});
  CHECK(devices[0].fixed == bytes{1000});
  CHECK(devices[0].peak == bytes{1000 + 3 + 7 + 150});
  CHECK(devices[1].peak == bytes{2000 + 7 + 2 + 10 + 9 + 500});
}

TEST_CASE("lower: stages in a row on one device hand their buffer over") {
  pipeline_problem p = test::equal_problem(2, 1, 10, 20);
  p.devices = 1;
  p.stage_device = {device_id{0}, device_id{0}};
  p.capacity.resize(1);
  p.hops[0] = {bytes{7}, nanoseconds{0}, bytes{9}, nanoseconds{0}};
  p.loads = {bytes{3}, bytes{2}};
  const schedule orders{{{pass_kind::forward, micro_batch_id{0}, stage_id{0}},
                         {pass_kind::forward, micro_batch_id{0}, stage_id{1}},
                         {pass_kind::backward, micro_batch_id{0}, stage_id{1}},
                         {pass_kind::backward, micro_batch_id{0}, stage_id{0}}}};
  const program lists = order_transfers(p, orders);
  const std::vector<device_plan> devices = lower(p, lists, *simulate(p, lists), {bytes{0}});
  CHECK(words(devices[0]) ==
        "load m0 > 0; forward m0 0 > 1; load m0 > 2; forward m0 1 2; backward m0 > 3 ready; free 2 1; backward m0 3 "
        "ready; free 0 3");
}
