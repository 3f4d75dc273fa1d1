#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include <dynapipe/plan/plan.hpp>

/// Small plans whose times and peaks were computed by hand.
namespace sample_plans {

using namespace dynapipe;

inline instruction at(instruction i, std::int64_t start, std::int64_t end) {
  i.start = nanoseconds{start};
  i.end = nanoseconds{end};
  return i;
}
inline instruction step(opcode op, int mb, int stage) {
  instruction i;
  i.op = op;
  i.mb = micro_batch_id{mb};
  i.stage = stage_id{stage};
  return i;
}
inline instruction load(int mb, int stage, int buffer, std::int64_t size) {
  instruction i = step(opcode::load, mb, stage);
  i.out = buffer_id{buffer};
  i.size = bytes{size};
  return i;
}
inline constexpr int none = -1;
/// A forward, or a backward with `in` of one gradient; `out` may be `none`.
inline instruction run(opcode op, int mb, int stage, std::initializer_list<int> in, int out, std::int64_t start,
                       std::int64_t end) {
  instruction i = at(step(op, mb, stage), start, end);
  for (const int buffer : in)
    i.in.push_back(buffer_id{buffer});
  i.out = buffer_id{out};
  return i;
}
inline instruction ready(instruction i) {
  i.grads_ready = true;
  return i;
}
inline instruction move(opcode op, tensor_kind tensor, int mb, int stage, int peer, int buffer, std::int64_t size,
                        std::int64_t start, std::int64_t end) {
  instruction i = at(step(op, mb, stage), start, end);
  i.tensor = tensor;
  i.peer = device_id{peer};
  i.out = buffer_id{buffer};
  i.size = bytes{size};
  return i;
}
inline instruction wait(opcode op, tensor_kind tensor, int mb, int stage, int peer) {
  instruction i = step(op, mb, stage);
  i.tensor = tensor;
  i.peer = device_id{peer};
  return i;
}
inline instruction release(std::initializer_list<int> buffers) {
  instruction i;
  i.op = opcode::free;
  for (const int buffer : buffers)
    i.in.push_back(buffer_id{buffer});
  return i;
}
inline stage_cost cost(std::int64_t forward, std::int64_t backward, std::int64_t stored, std::int64_t forward_peak,
                       std::int64_t backward_peak) {
  stage_cost c;
  c.forward = nanoseconds{forward};
  c.backward = nanoseconds{backward};
  c.stored = bytes{stored};
  c.forward_peak = bytes{forward_peak};
  c.backward_peak = bytes{backward_peak};
  return c;
}
inline boundary_cost boundary(std::int64_t size, std::int64_t forward, std::int64_t backward) {
  boundary_cost b;
  b.tensors = {{1, size / 4, 2}};
  b.forward_bytes = b.backward_bytes = bytes{size};
  b.forward = nanoseconds{forward};
  b.backward = nanoseconds{backward};
  return b;
}

inline constexpr tensor_kind activation = tensor_kind::activation;
inline constexpr tensor_kind gradient = tensor_kind::gradient;

/// Two devices of one stage each, two micro-batches, 1F1B, no arena.
///
///     device 0: F0 0-10, F1 10-16, B0 51-71, B1 72-84
///     device 1: F0 12-24, B0 24-48, F1 48-55, B1 55-69
inline plan one_f_one_b() {
  plan p;
  p.provenance.version = "0.1.0";
  p.provenance.cost_source = "by hand";
  p.provenance.options = {{"devices", "2"}, {"schedule", "1f1b"}};
  p.lengths = {{5, 0, 4}, {3, 0, 2}, {4, 0, 3}, {9, 0, 8}};
  p.source_rows = {3, 0, 2, 1};
  p.dropped = {sample_id{3}};
  p.pipeline.devices = 2;
  p.pipeline.stages = {{{0, 0}, {0, 2}, true, false}, {{0, 0}, {2, 4}, false, true}};
  p.pipeline.stage_device = {device_id{0}, device_id{1}};
  p.pipeline.schedule = "1f1b";
  p.predicted = nanoseconds{84};
  p.sync = nanoseconds{6};
  p.iteration = nanoseconds{90};
  p.lower_bound = nanoseconds{77};

  replica_plan replica;
  replica.predicted = nanoseconds{84};
  planned_micro_batch first;
  first.samples = {{sample_id{0}}, {sample_id{1}}};
  first.rows = 2;
  first.input_length = 8;
  first.loss_tokens = 6;
  first.cost = {cost(10, 20, 100, 120, 30), cost(12, 24, 100, 120, 30)};
  first.boundary = {boundary(64, 2, 3)};
  planned_micro_batch second;
  second.samples = {{sample_id{2}}};
  second.rows = 1;
  second.input_length = 4;
  second.loss_tokens = 3;
  second.cost = {cost(6, 12, 50, 60, 10), cost(7, 14, 50, 60, 10)};
  second.boundary = {boundary(32, 1, 1)};
  replica.micro_batches = {first, second};

  device_plan lower;
  lower.capacity = bytes{2000};
  lower.fixed = bytes{1000};
  lower.peak = bytes{1334};
  lower.instructions = {load(0, 0, 0, 16),
                        run(opcode::forward, 0, 0, {0}, 1, 0, 10),
                        move(opcode::send, activation, 0, 0, 1, 1, 64, 10, 12),
                        load(1, 0, 2, 8),
                        run(opcode::forward, 1, 0, {2}, 3, 10, 16),
                        move(opcode::send, activation, 1, 0, 1, 3, 32, 16, 17),
                        move(opcode::recv, gradient, 0, 0, 1, 4, 64, 48, 51),
                        wait(opcode::wait_send, activation, 0, 0, 1),
                        release({1}),
                        wait(opcode::wait_recv, gradient, 0, 0, 1),
                        run(opcode::backward, 0, 0, {4}, none, 51, 71),
                        release({0, 4}),
                        move(opcode::recv, gradient, 1, 0, 1, 5, 32, 71, 72),
                        wait(opcode::wait_send, activation, 1, 0, 1),
                        release({3}),
                        wait(opcode::wait_recv, gradient, 1, 0, 1),
                        ready(run(opcode::backward, 1, 0, {5}, none, 72, 84)),
                        release({2, 5})};
  device_plan upper;
  upper.capacity = bytes{2000};
  upper.fixed = bytes{900};
  upper.peak = bytes{1206};
  upper.instructions = {move(opcode::recv, activation, 0, 1, 0, 0, 64, 10, 12),
                        move(opcode::recv, activation, 1, 1, 0, 1, 32, 16, 17),
                        load(0, 1, 2, 16),
                        wait(opcode::wait_recv, activation, 0, 1, 0),
                        run(opcode::forward, 0, 1, {0, 2}, none, 12, 24),
                        run(opcode::backward, 0, 1, {}, 3, 24, 48),
                        move(opcode::send, gradient, 0, 1, 0, 3, 64, 48, 51),
                        release({0, 2}),
                        load(1, 1, 4, 8),
                        wait(opcode::wait_recv, activation, 1, 1, 0),
                        run(opcode::forward, 1, 1, {1, 4}, none, 48, 55),
                        ready(run(opcode::backward, 1, 1, {}, 5, 55, 69)),
                        move(opcode::send, gradient, 1, 1, 0, 5, 32, 71, 72),
                        release({1, 4}),
                        wait(opcode::wait_send, gradient, 0, 1, 0),
                        release({3}),
                        wait(opcode::wait_send, gradient, 1, 1, 0),
                        release({5})};
  replica.devices = {lower, upper};
  p.replicas = {replica};
  return p;
}

/// `one_f_one_b` with its buffers in arenas of 184 and 176 bytes.
inline plan with_arena() {
  plan p = one_f_one_b();
  const std::vector<std::vector<std::int64_t>> offsets = {{0, 16, 80, 88, 120, 0}, {0, 64, 96, 112, 0, 8}};
  for (std::size_t d = 0; d < 2; ++d)
    for (instruction& i : p.replicas[0].devices[d].instructions)
      if (i.op != opcode::send && i.out != buffer_id::none) i.offset = bytes{offsets[d][index(i.out)]};
  p.replicas[0].devices[0].arena = bytes{184};
  p.replicas[0].devices[0].peak = bytes{1364};
  p.replicas[0].devices[1].arena = bytes{176};
  p.replicas[0].devices[1].peak = bytes{1206};
  return p;
}

/// `one_f_one_b` with every backward in two halves.
///
///     device 0: F0 0-10, F1 10-16, I0 41-53, W0 53-61, I1 64-71, W1 71-76
///     device 1: F0 12-24, I0 24-38, W0 38-48, F1 48-55, I1 55-63, W1 63-69
inline plan split_backward() {
  plan p = one_f_one_b();
  p.predicted = p.replicas[0].predicted = nanoseconds{76};
  p.iteration = nanoseconds{82};
  p.lower_bound = nanoseconds{64};
  const std::int64_t halves[2][2][2] = {{{12, 8}, {14, 10}}, {{7, 5}, {8, 6}}};
  for (std::size_t m = 0; m < 2; ++m)
    for (std::size_t s = 0; s < 2; ++s) {
      stage_cost& c = p.replicas[0].micro_batches[m].cost[s];
      c.backward = nanoseconds{halves[m][s][0]};
      c.weight = nanoseconds{halves[m][s][1]};
      c.weight_stored = bytes{m == 0 ? 40 : 20};
    }
  std::vector<instruction>& lower = p.replicas[0].devices[0].instructions;
  lower[16] = run(opcode::backward_input, 1, 0, {5}, none, 64, 71);
  lower.insert(lower.begin() + 17, ready(at(step(opcode::backward_weight, 1, 0), 71, 76)));
  lower[12] = at(lower[12], 63, 64);
  lower[10] = run(opcode::backward_input, 0, 0, {4}, none, 41, 53);
  lower.insert(lower.begin() + 11, at(step(opcode::backward_weight, 0, 0), 53, 61));
  lower[6] = at(lower[6], 38, 41);
  std::vector<instruction>& upper = p.replicas[0].devices[1].instructions;
  upper[12] = at(upper[12], 63, 64);
  upper.insert(upper.begin() + 13, ready(at(step(opcode::backward_weight, 1, 1), 63, 69)));
  upper[11] = run(opcode::backward_input, 1, 1, {}, 5, 55, 63);
  upper[6] = at(upper[6], 38, 41);
  upper.insert(upper.begin() + 7, at(step(opcode::backward_weight, 0, 1), 38, 48));
  upper[5] = run(opcode::backward_input, 0, 1, {}, 3, 24, 38);
  return p;
}

/// One micro-batch through four stages on two devices, there and back: 0, 1, 1, 0; one communication queue each.
///
///     device 0: F(s0) 0-5, F(s3) 19-24, B(s3) 24-34, B(s0) 58-68
///     device 1: F(s1) 7-12, F(s2) 12-17, B(s2) 36-46, B(s1) 46-56
inline plan there_and_back() {
  plan p;
  p.lengths = {{6, 0, 5}};
  p.source_rows = {0};
  p.pipeline.devices = 2;
  p.pipeline.stages = {{{0, 0}, {0, 1}, true, false},
                       {{0, 0}, {1, 2}, false, false},
                       {{0, 0}, {2, 3}, false, false},
                       {{0, 0}, {3, 4}, false, true}};
  p.pipeline.stage_device = {device_id{0}, device_id{1}, device_id{1}, device_id{0}};
  p.pipeline.schedule = "zbv";
  p.pipeline.recompute = std::nullopt;
  p.pipeline.queues = queue_style::single;
  p.predicted = p.iteration = p.lower_bound = nanoseconds{68};
  planned_micro_batch batch;
  batch.samples = {{sample_id{0}}};
  batch.rows = 1;
  batch.input_length = 8;
  batch.loss_tokens = 5;
  batch.cost.assign(4, cost(5, 10, 10, 12, 4));
  batch.cost[2].recompute = recompute_mode::selective;
  batch.boundary = {boundary(16, 2, 2), boundary(16, 0, 0), boundary(16, 2, 2)};
  replica_plan replica;
  replica.predicted = nanoseconds{68};
  replica.micro_batches = {batch};

  device_plan outer;
  outer.capacity = bytes{200};
  outer.fixed = bytes{100};
  outer.peak = bytes{172};
  outer.instructions = {load(0, 0, 0, 8),
                        run(opcode::forward, 0, 0, {0}, 1, 0, 5),
                        move(opcode::send, activation, 0, 0, 1, 1, 16, 5, 7),
                        move(opcode::recv, activation, 0, 3, 1, 2, 16, 17, 19),
                        wait(opcode::wait_send, activation, 0, 0, 1),
                        release({1}),
                        load(0, 3, 3, 8),
                        wait(opcode::wait_recv, activation, 0, 3, 1),
                        run(opcode::forward, 0, 3, {2, 3}, none, 19, 24),
                        ready(run(opcode::backward, 0, 3, {}, 4, 24, 34)),
                        move(opcode::send, gradient, 0, 3, 1, 4, 16, 34, 36),
                        release({2, 3}),
                        move(opcode::recv, gradient, 0, 0, 1, 5, 16, 56, 58),
                        wait(opcode::wait_send, gradient, 0, 3, 1),
                        release({4}),
                        wait(opcode::wait_recv, gradient, 0, 0, 1),
                        ready(run(opcode::backward, 0, 0, {5}, none, 58, 68)),
                        release({0, 5})};
  device_plan inner;
  inner.capacity = bytes{200};
  inner.fixed = bytes{100};
  inner.peak = bytes{194};
  inner.instructions = {move(opcode::recv, activation, 0, 1, 0, 0, 16, 5, 7),
                        wait(opcode::wait_recv, activation, 0, 1, 0),
                        run(opcode::forward, 0, 1, {0}, 1, 7, 12),
                        run(opcode::forward, 0, 2, {1}, 2, 12, 17),
                        move(opcode::send, activation, 0, 2, 0, 2, 16, 17, 19),
                        move(opcode::recv, gradient, 0, 2, 0, 3, 16, 34, 36),
                        wait(opcode::wait_send, activation, 0, 2, 0),
                        release({2}),
                        wait(opcode::wait_recv, gradient, 0, 2, 0),
                        ready(run(opcode::backward, 0, 2, {3}, 4, 36, 46)),
                        ready(run(opcode::backward, 0, 1, {4}, 5, 46, 56)),
                        release({0, 1, 3, 4}),
                        move(opcode::send, gradient, 0, 1, 0, 5, 16, 56, 58),
                        wait(opcode::wait_send, gradient, 0, 1, 0),
                        release({5})};
  replica.devices = {outer, inner};
  p.replicas = {replica};
  return p;
}

/// All of them, by name.
inline std::vector<std::pair<const char*, plan>> all() {
  return {{"1f1b", one_f_one_b()},
          {"arena", with_arena()},
          {"split", split_backward()},
          {"there_and_back", there_and_back()}};
}

}  // namespace sample_plans
