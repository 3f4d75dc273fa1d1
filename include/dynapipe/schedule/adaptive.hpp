#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/schedule/dispatch.hpp>
#include <dynapipe/schedule/problem.hpp>
#include <dynapipe/schedule/program.hpp>

namespace dynapipe {

namespace detail {

/// Backwards before forwards, deeper stages before shallower ones, older micro-batches before younger ones.
///
/// Memory: the oldest unfinished micro-batch may use all of a device. The others together leave on every device the
/// room that any unfinished micro-batch needs when it is alone there. So the oldest can always go on, and it finishes;
/// then the next one is the oldest. Nothing gets stuck, and nothing is held back where there is room.
template <class Lazy>
class adaptive_policy {
 public:
  adaptive_policy(const pipeline_problem& problem, std::span<const micro_batch_id> injection)
      : order_{injection.begin(), injection.end()},
        rank_(problem.micro_batches),
        finished_(problem.micro_batches, 0),
        reserve_((problem.micro_batches + 1) * problem.devices, 0),
        ready_(problem.devices) {
    for (std::size_t i = order_.size(); i-- > 0;) {
      rank_[index(order_[i])] = i;
      const std::vector<bytes> alone = memory_alone(problem, index(order_[i]));
      for (std::size_t d = 0; d < problem.devices; ++d)
        reserve_[i * problem.devices + d] = std::max(reserve_[(i + 1) * problem.devices + d], alone[d].value());
    }
  }

  std::optional<compute_pass> pick(const dispatch_state& state, std::size_t d) {
    auto& ready = ready_[d];
    for (std::size_t i = 0; i < ready.size(); ++i)
      if (fits(state, d, ready[i])) {
        const compute_pass p = ready[i];
        if (p.kind == pass_kind::backward || p.stage != stage_id{0}) {
          ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(i));
          return p;
        }
      }
    if (state.problem.device_of(0) != d || injected_ == order_.size()) return std::nullopt;
    const compute_pass next{pass_kind::forward, order_[injected_], stage_id{0}};
    if (!fits(state, d, next)) return std::nullopt;
    ++injected_;
    return next;
  }

  bool admits(const dispatch_state& state, std::size_t d, std::size_t mb, std::int64_t size,
              const compute_pass&) const {
    return state.used[d] + size <= state.capacity(d) && leaves_room(state, d, mb, size);
  }

  void ended(const dispatch_state& state, const compute_pass& p) {
    const std::size_t s = index(p.stage);
    if (p.kind == pass_kind::forward) {
      if (s + 1 == state.problem.stages()) {
        make_ready(state, {pass_kind::backward, p.mb, p.stage});
      } else if (state.problem.joined(s)) {
        make_ready(state, {pass_kind::forward, p.mb, to_id<stage_id>(s + 1)});
      }
      return;
    }
    if (s > 0 && state.problem.joined(s - 1)) make_ready(state, {pass_kind::backward, p.mb, to_id<stage_id>(s - 1)});
    if (s == 0) {
      finished_[index(p.mb)] = 1;
      while (oldest_ < order_.size() && finished_[index(order_[oldest_])])
        ++oldest_;
    }
  }

  void arrived(const dispatch_state& state, std::size_t, tensor_kind tensor, std::size_t mb, std::size_t border) {
    const auto id = to_id<micro_batch_id>(mb);
    if (tensor == tensor_kind::activation) {
      make_ready(state, {pass_kind::forward, id, to_id<stage_id>(border + 1)});
    } else {
      make_ready(state, {pass_kind::backward, id, to_id<stage_id>(border)});
    }
  }

 private:
  [[nodiscard]] bool before(const compute_pass& a, const compute_pass& b) const {
    if (a.kind != b.kind) return a.kind == pass_kind::backward;
    if (a.kind == pass_kind::forward && a.stage != b.stage) return a.stage > b.stage;
    if (rank_[index(a.mb)] != rank_[index(b.mb)]) return rank_[index(a.mb)] < rank_[index(b.mb)];
    return a.stage > b.stage;
  }
  void make_ready(const dispatch_state& state, const compute_pass& p) {
    auto& ready = ready_[state.problem.device_of(index(p.stage))];
    ready.insert(std::upper_bound(ready.begin(), ready.end(), p,
                                  [this](const compute_pass& a, const compute_pass& b) { return before(a, b); }),
                 p);
  }

  [[nodiscard]] bool fits(const dispatch_state& state, std::size_t d, const compute_pass& p) const {
    const pass_memory memory = memory_of(state.problem, p);
    return state.used[d] + memory.running() <= state.capacity(d) &&
           leaves_room(state, d, index(p.mb), memory.kept - memory.released);
  }

  /// Whether micro-batch `mb` may hold `amount` more bytes of device `d` from now on.
  [[nodiscard]] bool leaves_room(const dispatch_state& state, std::size_t d, std::size_t mb,
                                 std::int64_t amount) const {
    if (amount <= 0 || oldest_ == order_.size() || index(order_[oldest_]) == mb) return true;
    const std::int64_t others = state.used[d] - state.transient[d] - state.held(d, index(order_[oldest_]));
    return others + amount <= state.capacity(d) - reserve_[oldest_ * state.problem.devices + d];
  }

  std::vector<micro_batch_id> order_;
  std::vector<std::size_t> rank_;  ///< place of a micro-batch in `order_`
  std::vector<char> finished_;
  std::vector<std::int64_t> reserve_;  ///< by rank and device: most that it or a later micro-batch needs alone
  std::vector<std::vector<compute_pass>> ready_;
  std::size_t injected_ = 0;
  std::size_t oldest_ = 0;
};

}  // namespace detail

/// The adaptive schedule: every device runs what is ready, and memory holds injection back.
///
/// Problem: order compute operations and transfers so that the pipeline of uneven micro-batches is short and every
/// device keeps within its capacity. Method: list scheduling in time (`detail::dispatcher`): an idle device runs a
/// ready backward first, else the deepest ready forward, else it injects the next micro-batch of `injection`; each of
/// them only where memory allows it, with room kept for the oldest micro-batch, so that the schedule never exceeds
/// memory and never gets stuck.
///
/// The result is a whole program, since which receive may start early is a matter of memory too.
///
/// Guarantee: a program exists exactly where every micro-batch alone fits (`memory_alone`), and then it is
/// deadlock-free and fits. A heuristic in time: no bound. Deterministic; ties go to the lower rank in `injection`.
/// Complexity: see `detail::dispatcher`. `injection` lists every micro-batch once.
///
/// @throws infeasible naming the micro-batch and device, where one does not fit alone.
/// Source: the memory-aware adaptive schedule of DynaPipe (arXiv 2311.10418, section 5), which orders by cycles of
/// ready operations and ignores their durations; here the order follows durations, and transfers and buffers count.
template <class Lazy = void>
[[nodiscard]] program adaptive(const pipeline_problem& problem, std::span<const micro_batch_id> injection) {
  DYNAPIPE_ASSERT(is_sound(problem));
  DYNAPIPE_ASSERT(injection.size() == problem.micro_batches);
  require_feasible(problem);
  detail::adaptive_policy<Lazy> policy{problem, injection};
  std::optional<program> result = detail::dispatcher{problem, policy}.run();
  DYNAPIPE_ASSERT(result.has_value());
  return std::move(*result);
}

/// As above, in the order of the micro-batches' ids.
template <class Lazy = void>
[[nodiscard]] program adaptive(const pipeline_problem& problem) {
  std::vector<micro_batch_id> injection;
  for (std::size_t mb = 0; mb < problem.micro_batches; ++mb)
    injection.push_back(to_id<micro_batch_id>(mb));
  return adaptive(problem, injection);
}

}  // namespace dynapipe
