#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/stage.hpp>
#include <dynapipe/schedule/kinds.hpp>

namespace dynapipe {

/// What one micro-batch moves between stage s and s + 1; see `boundary_cost`.
struct hop_cost {
  bytes forward_bytes{0};
  nanoseconds forward{0};
  bytes backward_bytes{0};
  nanoseconds backward{0};
};

/// One pipeline to schedule: stages on devices by any map, and costs of every micro-batch on every stage.
///
/// Lists over (micro-batch, stage) are flat, micro-batch first; `hops` has stages - 1 entries a micro-batch, whose
/// times are 0 inside a device. `capacity` is what each device has for activations and buffers.
struct pipeline_problem {
  std::size_t devices = 0;
  std::size_t micro_batches = 0;
  std::vector<device_id> stage_device;
  std::vector<stage_cost> cost;
  std::vector<hop_cost> hops;
  std::vector<bytes> loads;  ///< bytes that a stage loads of a micro-batch; 0: it loads nothing
  std::vector<bytes> capacity;
  std::optional<queue_style> queues = queue_style::per_direction;  ///< none: transfers are pure delays, side by side

  [[nodiscard]] std::size_t stages() const { return stage_device.size(); }
  [[nodiscard]] std::size_t device_of(std::size_t stage) const { return index(stage_device[stage]); }
  [[nodiscard]] const stage_cost& cost_of(std::size_t mb, std::size_t stage) const {
    return cost[mb * stages() + stage];
  }
  /// Between `stage` and `stage` + 1.
  [[nodiscard]] const hop_cost& hop(std::size_t mb, std::size_t stage) const {
    return hops[mb * (stages() - 1) + stage];
  }
  [[nodiscard]] bytes load_of(std::size_t mb, std::size_t stage) const { return loads[mb * stages() + stage]; }
  /// Whether stage `stage` and the one after it share a device.
  [[nodiscard]] bool joined(std::size_t stage) const { return stage_device[stage] == stage_device[stage + 1]; }
};

/// Whether the lists of `problem` have the lengths that its counts say, and every stage's device exists.
template <class Lazy = void>
[[nodiscard]] bool is_sound(const pipeline_problem& problem) {
  const std::size_t cells = problem.micro_batches * problem.stages();
  return problem.stages() > 0 && problem.cost.size() == cells && problem.loads.size() == cells &&
         problem.hops.size() == problem.micro_batches * (problem.stages() - 1) &&
         problem.capacity.size() == problem.devices &&
         std::all_of(problem.stage_device.begin(), problem.stage_device.end(),
                     [&](device_id device) { return index(device) < problem.devices; });
}

/// The time of all passes and transfers one after another, which no schedule here exceeds; held at the largest int64.
/// Where it is below that, no time of the pipeline overflows. O(micro-batches x stages).
template <class Lazy = void>
[[nodiscard]] nanoseconds serial_time(const pipeline_problem& problem) {
  std::int64_t sum = 0;
  const auto add = [&sum](nanoseconds time) { sum = saturating_add(sum, time.value()); };
  for (const stage_cost& cost : problem.cost) {
    add(cost.forward);
    add(cost.backward);
    add(cost.weight);
  }
  for (const hop_cost& hop : problem.hops) {
    add(hop.forward);
    add(hop.backward);
  }
  return nanoseconds{sum};
}

/// Room for `memory_alone`, to be used again from call to call.
struct memory_workspace {
  std::vector<wide_int> held;
  std::vector<wide_int> most;
};

/// The memory that one micro-batch needs on each device when it is alone in the pipeline: the most that any of its
/// operations has alive there. Every schedule needs at least the largest of all micro-batches, and running them one
/// after another needs no more, so a problem is feasible exactly where this fits every capacity.
///
/// The result, bytes by device, lives in `room`. O(stages).
template <class Lazy = void>
[[nodiscard]] std::span<const wide_int> memory_alone(const pipeline_problem& problem, std::size_t mb,
                                                     memory_workspace& room) {
  const std::size_t stages = problem.stages();
  auto& [held, most] = room;
  held.assign(problem.devices, 0);
  most.assign(problem.devices, 0);
  for (std::size_t s = 0; s < stages; ++s) {
    const std::size_t d = problem.device_of(s);
    held[d] += problem.load_of(mb, s).value();
    if (s > 0 && !problem.joined(s - 1)) held[d] += problem.hop(mb, s - 1).forward_bytes.value();
    const std::int64_t out = s + 1 < stages ? problem.hop(mb, s).forward_bytes.value() : 0;
    most[d] = std::max(most[d], held[d] + out + problem.cost_of(mb, s).forward_peak.value());
    held[d] += problem.cost_of(mb, s).stored.value();
    if (s + 1 < stages && problem.joined(s)) held[d] += out;
  }
  for (std::size_t s = stages; s-- > 0;) {
    const std::size_t d = problem.device_of(s);
    if (s + 1 < stages && !problem.joined(s)) held[d] += problem.hop(mb, s).backward_bytes.value();
    const std::int64_t out = s > 0 ? problem.hop(mb, s - 1).backward_bytes.value() : 0;
    most[d] = std::max(most[d], held[d] + out + problem.cost_of(mb, s).backward_peak.value());
    held[d] -= problem.cost_of(mb, s).stored.value();
    held[d] -= problem.load_of(mb, s).value();
    if (s > 0) held[d] -= problem.hop(mb, s - 1).forward_bytes.value();
    if (s + 1 < stages) held[d] -= problem.hop(mb, s).backward_bytes.value();
    if (s > 0 && problem.joined(s - 1)) held[d] += out;
  }
  return most;
}

/// As above, with room of its own; bytes beyond 2^63 are held there.
template <class Lazy = void>
[[nodiscard]] std::vector<bytes> memory_alone(const pipeline_problem& problem, std::size_t mb) {
  memory_workspace room;
  std::vector<bytes> result;
  for (const wide_int value : memory_alone(problem, mb, room))
    result.emplace_back(saturate(value));
  return result;
}

/// Checks that every micro-batch of `problem` alone fits every device.
///
/// @throws infeasible naming the micro-batch, the device and the bytes where one does not. O(micro-batches x stages).
template <class Lazy = void>
void require_feasible(const pipeline_problem& problem) {
  for (std::size_t mb = 0; mb < problem.micro_batches; ++mb) {
    const std::vector<bytes> alone = memory_alone(problem, mb);
    for (std::size_t d = 0; d < problem.devices; ++d)
      if (alone[d] > problem.capacity[d])
        throw infeasible{"micro-batch " + std::to_string(mb) + " needs " + std::to_string(alone[d].value()) +
                             " bytes on device " + std::to_string(d) + " beside the model's state, there are " +
                             std::to_string(problem.capacity[d].value()),
                         alone[d], problem.capacity[d]};
  }
}

}  // namespace dynapipe
