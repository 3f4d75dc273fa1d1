#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/schedule/problem.hpp>

namespace dynapipe {

/// A time that no schedule of `problem` can beat, whatever its memory and queues: the largest of
/// - the critical path: one micro-batch through all stages and back, with its transfers;
/// - the device load with heads and tails: on a device, the earliest that its first work can arrive, all of its work,
///   and the least that follows once the last backward has left its lowest stage.
///
/// Tight for equal micro-batches under 1F1B with free transfers. O(micro-batches x stages), never throws.
template <class Lazy = void>
[[nodiscard]] nanoseconds lower_bound(const pipeline_problem& problem) {
  const std::size_t stages = problem.stages();
  std::vector<std::int64_t> load(problem.devices, 0);
  std::vector<std::int64_t> head(problem.devices, int64_limit);
  std::vector<std::int64_t> tail(problem.devices, int64_limit);
  std::int64_t bound = 0;
  for (std::size_t mb = 0; mb < problem.micro_batches; ++mb) {
    std::int64_t before = 0;
    std::int64_t after = 0;
    std::int64_t path = 0;
    std::vector<char> seen(problem.devices, 0);
    for (std::size_t s = 0; s < stages; ++s) {
      const std::size_t d = problem.device_of(s);
      const stage_cost& cost = problem.cost_of(mb, s);
      const std::int64_t work =
          saturating_add(saturating_add(cost.forward.value(), cost.backward.value()), cost.weight.value());
      load[d] = saturating_add(load[d], work);
      if (!seen[d]) {
        seen[d] = 1;
        head[d] = std::min(head[d], before);
        tail[d] = std::min(tail[d], after);
      }
      path = saturating_add(path, saturating_add(cost.forward.value(), cost.backward.value()));
      before = saturating_add(before, cost.forward.value());
      after = saturating_add(after, cost.backward.value());
      if (s + 1 < stages) {
        const hop_cost& hop = problem.hop(mb, s);
        path = saturating_add(path, saturating_add(hop.forward.value(), hop.backward.value()));
        before = saturating_add(before, hop.forward.value());
        after = saturating_add(after, hop.backward.value());
      }
    }
    bound = std::max(bound, path);
  }
  if (problem.micro_batches > 0)
    for (std::size_t d = 0; d < problem.devices; ++d)
      if (head[d] < int64_limit) bound = std::max(bound, saturating_add(saturating_add(head[d], load[d]), tail[d]));
  return nanoseconds{bound};
}

}  // namespace dynapipe
