#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/schedule/kinds.hpp>
#include <dynapipe/schedule/problem.hpp>
#include <dynapipe/schedule/program.hpp>
#include <dynapipe/schedule/simulate.hpp>

namespace dynapipe::detail {

/// What a policy sees of a dispatch in progress.
struct dispatch_state {
  dispatch_state(const pipeline_problem& p)
      : problem{p},
        number{p},
        used(p.devices, 0),
        transient(p.devices, 0),
        held_by(p.devices * p.micro_batches, 0),
        started(number.count(), 0),
        done(number.count(), 0) {}

  const pipeline_problem& problem;
  operation_index number;
  std::vector<std::int64_t> used;       ///< bytes of a device, as its list stands
  std::vector<std::int64_t> transient;  ///< of them, what ends with the running operation
  std::vector<std::int64_t> held_by;    ///< bytes that a micro-batch holds, by device and micro-batch
  std::vector<char> started;            ///< by operation
  std::vector<char> done;

  [[nodiscard]] std::int64_t capacity(std::size_t d) const { return problem.capacity[d].value(); }
  [[nodiscard]] std::int64_t held(std::size_t d, std::size_t mb) const {
    return held_by[d * problem.micro_batches + mb];
  }
  void hold(std::size_t d, std::size_t mb, std::int64_t amount) {
    used[d] += amount;
    held_by[d * problem.micro_batches + mb] += amount;
  }

  /// Whether a pass could run now but for memory and a busy device.
  [[nodiscard]] bool ready(const compute_pass& p) const {
    const std::size_t mb = index(p.mb);
    const std::size_t s = index(p.stage);
    const auto is_done = [&](std::size_t id) { return done[id] != 0; };
    if (started[number.pass(p)] != 0) return false;
    if (p.kind == pass_kind::forward)
      return s == 0 || is_done(problem.joined(s - 1) ? number.forward(mb, s - 1) : number.activation(mb, s - 1));
    if (!is_done(number.forward(mb, s))) return false;
    return s + 1 == problem.stages() ||
           is_done(problem.joined(s) ? number.backward(mb, s + 1) : number.gradient(mb, s));
  }
};

/// Bytes that a pass adds to its device: what it loads and produces (`kept`, until released), what a forward stores,
/// and what it needs only while it runs.
struct pass_memory {
  std::int64_t kept = 0;
  std::int64_t transient = 0;
  std::int64_t released = 0;  ///< when it ends: a backward's stored bytes and input buffers

  [[nodiscard]] std::int64_t running() const { return kept + transient; }
};

template <class Lazy = void>
pass_memory memory_of(const pipeline_problem& problem, const compute_pass& p) {
  const std::size_t mb = index(p.mb);
  const std::size_t s = index(p.stage);
  const stage_cost& cost = problem.cost_of(mb, s);
  const bool last = s + 1 == problem.stages();
  if (p.kind == pass_kind::forward) {
    const std::int64_t out = last ? 0 : problem.hop(mb, s).forward_bytes.value();
    return {problem.load_of(mb, s).value() + out + cost.stored.value(), cost.forward_peak.value() - cost.stored.value(),
            0};
  }
  const std::int64_t inputs = problem.load_of(mb, s).value() +
                              (s > 0 ? problem.hop(mb, s - 1).forward_bytes.value() : 0) +
                              (last ? 0 : problem.hop(mb, s).backward_bytes.value());
  return {s > 0 ? problem.hop(mb, s - 1).backward_bytes.value() : 0, cost.backward_peak.value(),
          inputs + cost.stored.value()};
}

/// List scheduling in time over compute queues, transfer queues and memory.
///
/// At every event, idle devices start the pass that the policy picks, and transfers whose tensor is there start, first
/// come first served, where both ends' queues are free and the policy admits the received buffer. Everything that
/// happens is written to one global order: a pass when it ends, a transfer when it starts, a wait for a sent buffer as
/// soon as its device is idle. Every device's list is that order restricted to it, so no list can deadlock; a receive
/// stands before the pass that runs while it starts, so it overlaps with it; and the memory along a list is the one
/// counted here, so it keeps within capacity.
///
/// The clock here only decides the order. The times of the result are `simulate`'s, and never later.
///
/// A policy has `pick(state, device) -> optional<compute_pass>` (a ready pass that fits), `admits(state, device, mb,
/// bytes, consumer)` for a receive, and `ended(state, pass)`. O((passes + transfers) x (devices + waiting transfers)).
template <class Policy>
class dispatcher {
 public:
  dispatcher(const pipeline_problem& problem, Policy& policy)
      : state_{problem},
        policy_{policy},
        queue_{problem.devices, problem.queues.value_or(queue_style::per_direction)},
        queue_busy_(queue_.count(), 0),
        running_(problem.devices),
        sent_(problem.devices),
        lists_(problem.devices) {}

  /// The program, or none where everything that is left waits for memory.
  std::optional<program> run() {
    for (;;) {
      decide();
      if (events_.empty()) break;
      now_ = events_.front().time;
      while (!events_.empty() && events_.front().time == now_) {
        std::pop_heap(events_.begin(), events_.end(), later);
        const event e = events_.back();
        events_.pop_back();
        if (e.computes) {
          end_pass(e.device);
        } else {
          end_transfer(e.moved);
        }
      }
    }
    const operation_index& number = state_.number;
    for (std::size_t id = 0; id < number.passes(); ++id)
      if (!state_.done[id]) return std::nullopt;
    for (std::size_t d = 0; d < lists_.size(); ++d)
      settle(d);
    return std::move(lists_);
  }

 private:
  using action = program_step::action;

  struct transfer {
    tensor_kind tensor;
    std::size_t mb;
    std::size_t border;
  };
  struct event {
    std::int64_t time;
    std::size_t sequence;
    bool computes;
    std::size_t device;
    transfer moved;
  };
  static bool later(const event& a, const event& b) {
    return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
  }
  struct sent_buffer {
    program_step wait;
    std::int64_t size = 0;
  };

  void schedule_event(event e, nanoseconds duration) {
    e.time = saturating_add(now_, duration.value());
    e.sequence = sequence_++;
    events_.push_back(e);
    std::push_heap(events_.begin(), events_.end(), later);
  }

  void decide() {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t d = 0; d < lists_.size(); ++d)
        if (!running_[d]) settle(d);
      for (std::size_t i = 0; i < waiting_.size();) {
        if (start_transfer(waiting_[i])) {
          waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
          changed = true;
        } else {
          ++i;
        }
      }
      for (std::size_t d = 0; d < lists_.size(); ++d) {
        if (running_[d]) continue;
        if (const std::optional<compute_pass> p = policy_.pick(state_, d)) {
          start_pass(d, *p);
          changed = true;
        }
      }
    }
  }

  /// Waits for and releases the sent buffers of an idle device whose transfers have ended.
  void settle(std::size_t d) {
    for (const sent_buffer& b : sent_[d]) {
      lists_[d].push_back(b.wait);
      state_.hold(d, index(b.wait.mb), -b.size);
    }
    sent_[d].clear();
  }

  void start_pass(std::size_t d, const compute_pass& p) {
    const pipeline_problem& problem = state_.problem;
    const pass_memory memory = memory_of(problem, p);
    state_.hold(d, index(p.mb), memory.kept);
    state_.used[d] += memory.transient;
    state_.transient[d] = memory.transient;
    state_.started[state_.number.pass(p)] = 1;
    running_[d] = p;
    const stage_cost& cost = problem.cost_of(index(p.mb), index(p.stage));
    schedule_event({.time = 0, .sequence = 0, .computes = true, .device = d, .moved = {}},
                   p.kind == pass_kind::forward ? cost.forward : cost.backward);
  }

  void end_pass(std::size_t d) {
    const pipeline_problem& problem = state_.problem;
    const compute_pass p = *running_[d];
    const std::size_t mb = index(p.mb);
    const std::size_t s = index(p.stage);
    const bool forward = p.kind == pass_kind::forward;
    running_[d].reset();
    state_.done[state_.number.pass(p)] = 1;
    state_.used[d] -= state_.transient[d];
    state_.transient[d] = 0;
    state_.hold(d, mb, -memory_of(problem, p).released);
    const bool received = forward ? s > 0 && !problem.joined(s - 1) : s + 1 < problem.stages() && !problem.joined(s);
    const tensor_kind input = forward ? tensor_kind::activation : tensor_kind::gradient;
    if (received) lists_[d].push_back({action::wait_recv, input, p.mb, p.stage});
    lists_[d].push_back({forward ? action::forward : action::backward, input, p.mb, p.stage});
    if (forward && s + 1 < problem.stages() && !problem.joined(s)) waiting_.push_back({tensor_kind::activation, mb, s});
    if (!forward && s > 0 && !problem.joined(s - 1)) waiting_.push_back({tensor_kind::gradient, mb, s - 1});
    policy_.ended(state_, p);
  }

  [[nodiscard]] std::size_t id_of(const transfer& t) const {
    return t.tensor == tensor_kind::activation ? state_.number.activation(t.mb, t.border)
                                               : state_.number.gradient(t.mb, t.border);
  }
  [[nodiscard]] std::int64_t size_of(const transfer& t) const {
    const hop_cost& hop = state_.problem.hop(t.mb, t.border);
    return (t.tensor == tensor_kind::activation ? hop.forward_bytes : hop.backward_bytes).value();
  }
  [[nodiscard]] program_step step_of(const transfer& t, action what) const {
    const bool high = (t.tensor == tensor_kind::activation) != (what == action::send || what == action::wait_send);
    return {what, t.tensor, to_id<micro_batch_id>(t.mb), to_id<stage_id>(t.border + (high ? 1 : 0))};
  }

  bool start_transfer(const transfer& t) {
    const pipeline_problem& problem = state_.problem;
    const transfer_ends ends = ends_of(problem, t.tensor, t.mb, t.border);
    char& from = queue_busy_[queue_.of(ends.source, ends.target, true)];
    char& to = queue_busy_[queue_.of(ends.target, ends.source, false)];
    if (problem.queues && (from || to)) return false;
    const std::size_t target_stage = t.border + (t.tensor == tensor_kind::activation ? 1 : 0);
    const compute_pass consumer{t.tensor == tensor_kind::activation ? pass_kind::forward : pass_kind::backward,
                                to_id<micro_batch_id>(t.mb), to_id<stage_id>(target_stage)};
    if (!policy_.admits(state_, ends.target, t.mb, size_of(t), consumer)) return false;
    if (problem.queues) from = to = 1;
    state_.started[id_of(t)] = 1;
    state_.hold(ends.target, t.mb, size_of(t));
    lists_[ends.source].push_back(step_of(t, action::send));
    lists_[ends.target].push_back(step_of(t, action::recv));
    schedule_event({.time = 0, .sequence = 0, .computes = false, .device = 0, .moved = t}, ends.time);
    return true;
  }

  void end_transfer(const transfer& t) {
    const transfer_ends ends = ends_of(state_.problem, t.tensor, t.mb, t.border);
    queue_busy_[queue_.of(ends.source, ends.target, true)] = 0;
    queue_busy_[queue_.of(ends.target, ends.source, false)] = 0;
    state_.done[id_of(t)] = 1;
    sent_[ends.source].push_back({step_of(t, action::wait_send), size_of(t)});
    policy_.arrived(state_, ends.target, t.tensor, t.mb, t.border);
  }

  dispatch_state state_;
  Policy& policy_;
  queue_index queue_;
  std::vector<char> queue_busy_;
  std::vector<std::optional<compute_pass>> running_;
  std::vector<std::vector<sent_buffer>> sent_;  ///< arrived, not yet waited for
  std::vector<transfer> waiting_;               ///< whose tensor is there, oldest first
  std::vector<event> events_;
  program lists_;
  std::int64_t now_ = 0;
  std::size_t sequence_ = 0;
};

}  // namespace dynapipe::detail
