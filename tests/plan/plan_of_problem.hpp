#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <dynapipe/plan/lower.hpp>
#include <dynapipe/plan/plan.hpp>
#include <dynapipe/schedule/bound.hpp>
#include <dynapipe/schedule/problem.hpp>
#include <dynapipe/schedule/program.hpp>

namespace dynapipe::test {

/// A whole plan around one scheduled pipeline: every micro-batch is one sample of five tokens, three of them with loss.
inline plan plan_of_problem(const pipeline_problem& p, const program& lists, const timeline& times,
                            const std::vector<bytes>& fixed) {
  plan result;
  result.pipeline.devices = static_cast<std::int64_t>(p.devices);
  result.pipeline.stages.resize(p.stages());
  result.pipeline.stage_device = p.stage_device;
  result.pipeline.queues = *p.queues;
  replica_plan& replica = result.replicas.emplace_back();
  replica.predicted = times.makespan;
  replica.devices = lower(p, lists, times, fixed);
  for (std::size_t m = 0; m < p.micro_batches; ++m) {
    planned_micro_batch mb;
    mb.samples = {{to_id<sample_id>(m)}};
    mb.rows = 1;
    mb.input_length = 8;
    mb.loss_tokens = 3;
    result.lengths.push_back({5, 0, 3});
    result.source_rows.push_back(static_cast<std::int64_t>(m));
    for (std::size_t s = 0; s < p.stages(); ++s)
      mb.cost.push_back(p.cost_of(m, s));
    for (std::size_t s = 0; s + 1 < p.stages(); ++s) {
      const hop_cost& hop = p.hop(m, s);
      mb.boundary.push_back({{{1, 8, 4}}, hop.forward_bytes, hop.forward, hop.backward_bytes, hop.backward});
    }
    replica.micro_batches.push_back(std::move(mb));
  }
  result.predicted = times.makespan;
  result.iteration = times.makespan;
  result.lower_bound = lower_bound(p);
  return result;
}

}  // namespace dynapipe::test
