#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <dynapipe/core.hpp>
#include <dynapipe/schedule/problem.hpp>
#include <dynapipe/schedule/program.hpp>

namespace dynapipe::test {

/// `micro_batches` equal micro-batches on one stage a device: forward `f`, backward `b`, free transfers, `stored` bytes
/// each.
inline pipeline_problem equal_problem(std::size_t stages, std::size_t micro_batches, std::int64_t f, std::int64_t b,
                                      bytes stored = bytes{1}, bytes capacity = gib(1)) {
  pipeline_problem p;
  p.devices = stages;
  p.micro_batches = micro_batches;
  for (std::size_t s = 0; s < stages; ++s)
    p.stage_device.push_back(to_id<device_id>(s));
  p.cost.assign(stages * micro_batches,
                {.forward = nanoseconds{f}, .backward = nanoseconds{b}, .stored = stored, .forward_peak = stored});
  p.hops.resize((stages - 1) * micro_batches);
  p.loads.resize(stages * micro_batches);
  p.capacity.assign(stages, capacity);
  return p;
}

/// The most micro-batches that a device holds between their forward and their backward.
inline std::size_t most_in_flight(const std::vector<program_step>& list) {
  std::size_t now = 0, most = 0;
  for (const program_step& step : list) {
    if (step.what == program_step::action::forward) most = std::max(most, ++now);
    if (step.what == program_step::action::backward) --now;
  }
  return most;
}

}  // namespace dynapipe::test
