#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/plan/plan.hpp>
#include <dynapipe/plan/validate_batch.hpp>
#include <dynapipe/plan/validate_memory.hpp>
#include <dynapipe/plan/validate_program.hpp>
#include <dynapipe/plan/validate_time.hpp>
#include <dynapipe/plan/violation.hpp>

namespace dynapipe {

namespace validation {

/// Work of the busiest device of a replica, which no schedule can undercut: the sum of its stages' times.
template <class Lazy = void>
[[nodiscard]] wide_int busiest_load(const replica_view& view) {
  std::vector<wide_int> load(view.devices(), 0);
  for (const planned_micro_batch& batch : view.replica().micro_batches)
    for (std::size_t s = 0; s < view.stages(); ++s) {
      const stage_cost& c = batch.cost[s];
      load[view.device_of(s)] += static_cast<wide_int>(c.forward.value()) + c.backward.value() + c.weight.value();
    }
  return load.empty() ? 0 : *std::max_element(load.begin(), load.end());
}

/// Judges what one replica does; its replayed time, if it can be replayed.
template <class Lazy = void>
std::optional<wide_int> check_replica(const replica_view& view, findings& found) {
  program_index at{view};
  std::vector<bool> legal(view.devices(), true);
  const bool complete = check_program(view, at, legal, found);
  transfer_states<Lazy> transfers{view};
  for (std::size_t d = 0; d < view.devices() && !found.full(); ++d)
    if (legal[d]) memory_walk<Lazy>{view, d, at, transfers, found}.run();
  if (!complete || found.full()) return std::nullopt;

  const std::optional<wide_int> span = replay<Lazy>{view, at}.run(found);
  if (span && *span != view.replica().predicted.value())
    found.add(text("replicas[", view.number, "].predicted_ns"), "is ", view.replica().predicted, ", the replica takes ",
              *span, " ns");
  return span;
}

}  // namespace validation

/// Judges a plan by its file format's promises alone; empty means that it holds.
///
/// A plan holds if every sample is planned or dropped exactly once in rows that fit and with its loss tokens; costs and
/// layers are sane; every (micro-batch, stage) has one forward and one backward, whole or halved, on its stage's
/// device; transfers pair up in size, duration, time and order; every device can finish even where all its work is one
/// unbuffered queue; stated times are what the queues give; every buffer is fresh when made, filled when read, freed
/// once, and not before its last use; no two live buffers share arena bytes; stated peaks are real and within capacity;
/// gradients are declared ready exactly once, at the end; and the lower bound lies between the busiest device's work
/// and the plan's time. The provenance is not judged.
///
/// Guarantee: shares no code with what makes plans; accepts any value, however broken, and throws nothing of its own
/// (only `std::bad_alloc`). At most 20 violations are returned, in order of discovery; later ones may follow from
/// earlier ones. What cannot be judged because of an earlier violation is left out.
///
/// Complexity: n log n in the plan's size, nearly all of it linear.
///
/// Example: `for (const violation& v : validate(p)) std::cerr << v.where << ": " << v.what << '\n';`
template <class Lazy = void>
[[nodiscard]] std::vector<violation> validate(const plan& p) {
  validation::findings found;
  const bool usable = validation::check_pipeline(p, found);
  const std::vector<bool> sized = validation::check_batch(p, found);
  wide_int slowest = 0;
  wide_int busiest = 0;
  for (std::size_t r = 0; r < p.replicas.size() && !found.full(); ++r) {
    std::optional<wide_int> span;
    if (usable && sized[r]) {
      const validation::replica_view view{p, r};
      span = validation::check_replica(view, found);
      busiest = std::max(busiest, validation::busiest_load(view));
    }
    slowest = std::max(slowest, span.value_or(p.replicas[r].predicted.value()));
  }
  if (found.full()) return std::move(found).take();

  if (p.predicted.value() != slowest)
    found.add("predicted_ns", "is ", p.predicted, ", the slowest replica takes ", slowest);
  if (p.sync.value() < 0) found.add("sync_ns", "is negative: ", p.sync);
  if (p.iteration.value() != static_cast<wide_int>(p.predicted.value()) + p.sync.value())
    found.add("iteration_ns", "is ", p.iteration, ", predicted_ns + sync_ns is ",
              static_cast<wide_int>(p.predicted.value()) + p.sync.value());
  if (p.lower_bound.value() < busiest)
    found.add("lower_bound_ns", "is ", p.lower_bound, ", below the busiest device's work of ", busiest);
  if (p.lower_bound.value() > slowest)
    found.add("lower_bound_ns", "is ", p.lower_bound, ", above the plan's own time of ", slowest);
  return std::move(found).take();
}

}  // namespace dynapipe
