#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/schedule/dispatch.hpp>
#include <dynapipe/schedule/problem.hpp>
#include <dynapipe/schedule/program.hpp>

namespace dynapipe {

namespace detail {

/// Follows given orders. A receive starts before its consumer is next only where all that runs until then still fits.
template <class Lazy>
class given_orders {
 public:
  given_orders(const pipeline_problem& problem, const schedule& orders)
      : orders_{orders},
        next_(problem.devices, 0),
        place_(operation_index{problem}.passes(), 0),
        least_(problem.devices),
        base_(problem.devices) {
    const operation_index number{problem};
    for (std::size_t d = 0; d < problem.devices; ++d) {
      std::int64_t held = 0;
      for (std::size_t k = 0; k < orders[d].size(); ++k) {
        const compute_pass& p = orders[d][k];
        const pass_memory memory = memory_of(problem, p);
        place_[number.pass(p)] = k;
        base_[d].push_back(held);
        held += received(problem, p);
        least_[d].push_back(held + memory.running());
        held += memory.kept - memory.released - sent(problem, p);
      }
    }
  }

  /// What the orders need of a device at least: each receive as late, each wait for a sent buffer as early as can be.
  [[nodiscard]] bytes least_memory(std::size_t d) const {
    return bytes{least_[d].empty() ? 0 : *std::max_element(least_[d].begin(), least_[d].end())};
  }

  std::optional<compute_pass> pick(const dispatch_state& state, std::size_t d) {
    if (next_[d] == orders_[d].size()) return std::nullopt;
    const compute_pass& p = orders_[d][next_[d]];
    if (!state.ready(p) || state.used[d] + memory_of(state.problem, p).running() > state.capacity(d))
      return std::nullopt;
    ++next_[d];
    return p;
  }

  [[nodiscard]] bool admits(const dispatch_state& state, std::size_t d, std::size_t, std::int64_t size,
                            const compute_pass& consumer) const {
    if (state.used[d] + size > state.capacity(d)) return false;
    const std::size_t wanted = place_[state.number.pass(consumer)];
    if (next_[d] >= wanted) return true;
    // Buffers beyond the least that the orders need: received early, or sent and not yet gone.
    std::int64_t extra = size + state.used[d] - state.transient[d] - base_[d][next_[d]];
    for (std::size_t k = next_[d]; k < wanted; ++k) {
      const compute_pass& p = orders_[d][k];
      if (input_started(state, p)) extra -= received(state.problem, p);
      if (least_[d][k] + extra > state.capacity(d)) return false;
    }
    return true;
  }

  void ended(const dispatch_state&, const compute_pass&) {}
  void arrived(const dispatch_state&, std::size_t, tensor_kind, std::size_t, std::size_t) {}

 private:
  static std::int64_t received(const pipeline_problem& problem, const compute_pass& p) {
    const std::size_t s = index(p.stage);
    if (p.kind == pass_kind::forward)
      return s > 0 && !problem.joined(s - 1) ? problem.hop(index(p.mb), s - 1).forward_bytes.value() : 0;
    return s + 1 < problem.stages() && !problem.joined(s) ? problem.hop(index(p.mb), s).backward_bytes.value() : 0;
  }
  static std::int64_t sent(const pipeline_problem& problem, const compute_pass& p) {
    const std::size_t s = index(p.stage);
    if (p.kind == pass_kind::forward)
      return s + 1 < problem.stages() && !problem.joined(s) ? problem.hop(index(p.mb), s).forward_bytes.value() : 0;
    return s > 0 && !problem.joined(s - 1) ? problem.hop(index(p.mb), s - 1).backward_bytes.value() : 0;
  }
  static bool input_started(const dispatch_state& state, const compute_pass& p) {
    const std::size_t mb = index(p.mb);
    const std::size_t s = index(p.stage);
    if (p.kind == pass_kind::forward) return s > 0 && state.started[state.number.activation(mb, s - 1)] != 0;
    return s + 1 < state.problem.stages() && state.started[state.number.gradient(mb, s)] != 0;
  }

  const schedule& orders_;
  std::vector<std::size_t> next_;
  std::vector<std::size_t> place_;                ///< of a pass in its device's order
  std::vector<std::vector<std::int64_t>> least_;  ///< memory while each pass runs, at least
  std::vector<std::vector<std::int64_t>> base_;   ///< memory held before each pass, at least
};

}  // namespace detail

/// Places sends, receives and waits around given compute orders: one global order of all operations, restricted to each
/// device.
///
/// A transfer enters the global order when it starts in time, a compute operation when it ends. So a receive stands
/// before the operation that runs while it starts and overlaps with it, and since one order holds for all devices the
/// lists cannot deadlock, in whatever queues they are run (DynaPipe, arXiv 2311.10418, section 6, orders by start times
/// alone and loses that overlap). A receive moves ahead of its consumer only as far as memory allows.
///
/// @throws infeasible naming the device and the bytes, where the orders do not fit the memory; error where the orders
/// themselves wait for each other. O((passes + transfers) x (devices + waiting transfers)).
template <class Lazy = void>
[[nodiscard]] program order_transfers(const pipeline_problem& problem, const schedule& orders) {
  DYNAPIPE_ASSERT(is_sound(problem));
  require_feasible(problem);
  detail::given_orders<Lazy> policy{problem, orders};
  for (std::size_t d = 0; d < problem.devices; ++d)
    if (policy.least_memory(d) > problem.capacity[d])
      throw infeasible{"this order of operations needs " + std::to_string(policy.least_memory(d).value()) +
                           " bytes on device " + std::to_string(d) + " beside the model's state, there are " +
                           std::to_string(problem.capacity[d].value()) + " (schedule 'adaptive' adapts to the memory)",
                       policy.least_memory(d), problem.capacity[d]};
  std::optional<program> result = detail::dispatcher{problem, policy}.run();
  if (!result) {
    throw error{
        "this order of operations stops: operations wait for each other, or for memory that buffers in flight hold "
        "(schedule 'adaptive' adapts to the memory)"};
  }
  return std::move(*result);
}

}  // namespace dynapipe
