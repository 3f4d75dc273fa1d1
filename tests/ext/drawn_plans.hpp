#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/plan/planner.hpp>

/// Plans to report on and to draw.
namespace drawn_plans {

using namespace dynapipe;

inline instruction compute(opcode op, int mb, int stage, std::int64_t start, std::int64_t end) {
  instruction i;
  i.op = op;
  i.mb = micro_batch_id{mb};
  i.stage = stage_id{stage};
  i.start = nanoseconds{start};
  i.end = nanoseconds{end};
  return i;
}

/// Two devices, two micro-batches, 80 ms; computations only.
inline plan two_by_two() {
  constexpr std::int64_t ms = 1'000'000;
  plan p;
  p.lengths = {{7, 0, 3}, {15, 0, 4}, {30, 0, 9}};
  p.source_rows = {0, 1, 2};
  p.dropped = {sample_id{1}};
  p.pipeline.devices = 2;
  p.predicted = nanoseconds{80 * ms};
  p.sync = nanoseconds{5 * ms};
  p.iteration = nanoseconds{85 * ms};
  p.lower_bound = nanoseconds{64 * ms};
  replica_plan& replica = p.replicas.emplace_back();
  replica.predicted = p.predicted;
  for (const std::int64_t length : {8, 32}) {
    planned_micro_batch& mb = replica.micro_batches.emplace_back();
    mb.rows = 1;
    mb.input_length = length;
    mb.loss_tokens = length == 8 ? 3 : 9;
  }
  device_plan& first = replica.devices.emplace_back();
  first.capacity = gib(4);
  first.peak = gib(1);
  first.instructions = {compute(opcode::forward, 0, 0, 0, 10 * ms), compute(opcode::forward, 1, 0, 10 * ms, 20 * ms),
                        compute(opcode::backward, 0, 0, 40 * ms, 60 * ms),
                        compute(opcode::backward, 1, 0, 60 * ms, 80 * ms)};
  device_plan& second = replica.devices.emplace_back();
  second.capacity = gib(4);
  second.peak = mib(1536);
  second.instructions = {
      compute(opcode::forward, 0, 1, 10 * ms, 20 * ms), compute(opcode::backward_input, 0, 1, 20 * ms, 30 * ms),
      compute(opcode::backward_weight, 0, 1, 30 * ms, 40 * ms), compute(opcode::forward, 1, 1, 40 * ms, 50 * ms),
      compute(opcode::backward, 1, 1, 50 * ms, 60 * ms)};
  return p;
}

/// Samples of an encoder-decoder or decoder-only model over 4 devices with slow links, in 3 replicas.
inline plan planned(bool encoder_decoder, std::size_t samples, queue_style queues) {
  model_spec model = encoder_decoder ? presets::t5("small", 6) : presets::gpt("small", 8, 512, 8);
  if (encoder_decoder) model.ffn = 2'048;
  cluster_spec cluster = presets::a100_40g();
  cluster.devices_per_node = 2;
  cluster.inter_node = {.latency = nanoseconds{50'000}, .gbps = 2};
  std::mt19937_64 random{samples};
  std::vector<sample> batch;
  for (std::size_t i = 0; i < samples; ++i)
    batch.push_back({static_cast<std::int64_t>(1 + random() % 900), static_cast<std::int64_t>(1 + random() % 90)});
  const analytic_cost cost{model, cluster};
  planner_options options;
  options.pipeline = 4;
  options.data = 3;
  options.queues = queues;
  return planner{model, cluster, cost, options}(batch);
}

}  // namespace drawn_plans
