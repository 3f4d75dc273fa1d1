#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/schedule/simulate.hpp>

using namespace dynapipe;

namespace {

using action = program_step::action;

constexpr micro_batch_id m0{0}, m1{1};
constexpr stage_id s0{0}, s1{1};

/// Two devices, two micro-batches: forwards 10 and 20, backwards 20 and 40, hops 5.
pipeline_problem two_by_two(std::optional<queue_style> queues) {
  pipeline_problem p{.devices = 2,
                     .micro_batches = 2,
                     .stage_device = {device_id{0}, device_id{1}},
                     .cost = {},
                     .hops = {},
                     .loads = std::vector<bytes>(4),
                     .capacity = std::vector<bytes>(2, gib(1)),
                     .queues = queues};
  for (const std::int64_t size : {1, 2}) {
    for (int s = 0; s < 2; ++s)
      p.cost.push_back({.forward = nanoseconds{10 * size}, .backward = nanoseconds{20 * size}});
    p.hops.push_back({bytes{1}, nanoseconds{5}, bytes{1}, nanoseconds{5}});
  }
  return p;
}

constexpr tensor_kind act = tensor_kind::activation, grad = tensor_kind::gradient;

program one_after_another() {
  return {{{action::forward, act, m0, s0},
           {action::send, act, m0, s0},
           {action::forward, act, m1, s0},
           {action::send, act, m1, s0},
           {action::wait_send, act, m0, s0},
           {action::recv, grad, m0, s0},
           {action::wait_recv, grad, m0, s0},
           {action::backward, grad, m0, s0},
           {action::recv, grad, m1, s0},
           {action::wait_recv, grad, m1, s0},
           {action::backward, grad, m1, s0}},
          {{action::recv, act, m0, s1},
           {action::wait_recv, act, m0, s1},
           {action::forward, act, m0, s1},
           {action::recv, act, m1, s1},
           {action::wait_recv, act, m1, s1},
           {action::forward, act, m1, s1},
           {action::backward, grad, m0, s1},
           {action::send, grad, m0, s1},
           {action::backward, grad, m1, s1},
           {action::send, grad, m1, s1}}};
}

}  // namespace

TEST_CASE("simulate: times by hand") {
  const pipeline_problem p = two_by_two(queue_style::per_direction);
  const operation_index number{p};
  const std::optional<timeline> t = simulate(p, one_after_another());
  REQUIRE(t.has_value());
  const auto span = [&](std::size_t id, std::int64_t start, std::int64_t end) {
    CHECK(t->spans[id] == time_span{nanoseconds{start}, nanoseconds{end}});
  };
  span(number.forward(0, 0), 0, 10);
  span(number.activation(0, 0), 10, 15);
  span(number.forward(1, 0), 10, 30);
  span(number.forward(0, 1), 15, 25);
  span(number.activation(1, 0), 30, 35);
  span(number.forward(1, 1), 35, 55);
  span(number.backward(0, 1), 55, 75);
  span(number.gradient(0, 0), 75, 80);
  span(number.backward(0, 0), 80, 100);
  span(number.backward(1, 1), 75, 115);
  span(number.gradient(1, 0), 115, 120);
  span(number.backward(1, 0), 120, 160);
  CHECK(t->makespan == nanoseconds{160});
}

TEST_CASE("simulate: a receive waits for the computation that stands before it, unless transfers are pure delays") {
  program late = one_after_another();
  std::swap(late[0][7], late[0][8]);
  // Now the receive of the second gradient stands before the first backward, and nothing changes: it starts at 115.
  CHECK(simulate(two_by_two(queue_style::per_direction), late)->makespan == nanoseconds{160});

  pipeline_problem p = two_by_two(queue_style::per_direction);
  p.cost[0].backward = nanoseconds{60};  // of micro-batch 0 on stage 0: now it runs until 140
  CHECK(simulate(p, late)->makespan == nanoseconds{180});
  CHECK(simulate(p, one_after_another())->makespan == nanoseconds{185});
  p.queues = std::nullopt;
  CHECK(simulate(p, one_after_another())->makespan == nanoseconds{180});
}

TEST_CASE("simulate: transfers share queues as the style says") {
  // Device 1 computes micro-batch 0 to the end before micro-batch 1 comes; the second activation takes 100, from 30 on,
  // and the first gradient is there at 45.
  pipeline_problem p = two_by_two(queue_style::per_direction);
  p.hops[1].forward = nanoseconds{100};
  const operation_index number{p};
  const program lists{{{action::forward, act, m0, s0},
                       {action::send, act, m0, s0},
                       {action::forward, act, m1, s0},
                       {action::send, act, m1, s0},
                       {action::recv, grad, m0, s0},
                       {action::wait_recv, grad, m0, s0},
                       {action::backward, grad, m0, s0},
                       {action::recv, grad, m1, s0},
                       {action::wait_recv, grad, m1, s0},
                       {action::backward, grad, m1, s0}},
                      {{action::recv, act, m0, s1},
                       {action::wait_recv, act, m0, s1},
                       {action::forward, act, m0, s1},
                       {action::recv, act, m1, s1},
                       {action::backward, grad, m0, s1},
                       {action::send, grad, m0, s1},
                       {action::wait_recv, act, m1, s1},
                       {action::forward, act, m1, s1},
                       {action::backward, grad, m1, s1},
                       {action::send, grad, m1, s1}}};
  const auto gradient_start = [&](queue_style style) {
    p.queues = style;
    const std::optional<timeline> t = simulate(p, lists);
    REQUIRE(t.has_value());
    return t->spans[number.gradient(0, 0)].start.value();
  };
  CHECK(gradient_start(queue_style::per_direction) == 45);
  CHECK(gradient_start(queue_style::per_peer) == 130);
  CHECK(gradient_start(queue_style::single) == 130);
}

TEST_CASE("simulate: none where a device with one queue would stop") {
  const pipeline_problem p = two_by_two(queue_style::per_direction);
  program lists = one_after_another();
  std::swap(lists[0][3], lists[0][5]);  // the gradient's receive before the send that it depends on
  CHECK_FALSE(simulate(p, lists).has_value());
  lists = one_after_another();
  lists[1].pop_back();
  CHECK_FALSE(simulate(p, lists).has_value());
}
