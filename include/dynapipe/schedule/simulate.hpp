#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/schedule/kinds.hpp>
#include <dynapipe/schedule/problem.hpp>
#include <dynapipe/schedule/program.hpp>

namespace dynapipe {

namespace detail {

/// The two ends of a transfer, and its time.
struct transfer_ends {
  std::size_t source = 0;
  std::size_t target = 0;
  nanoseconds time{0};
};

template <class Lazy = void>
transfer_ends ends_of(const pipeline_problem& problem, tensor_kind tensor, std::size_t mb, std::size_t border) {
  const std::size_t low = problem.device_of(border);
  const std::size_t high = problem.device_of(border + 1);
  const hop_cost& hop = problem.hop(mb, border);
  if (tensor == tensor_kind::activation) return {low, high, hop.forward};
  return {high, low, hop.backward};
}

/// Numbers of a device's transfer queues under a style.
class queue_index {
 public:
  queue_index(std::size_t devices, queue_style style) : devices_{devices}, style_{style} {}

  [[nodiscard]] std::size_t of(std::size_t device, std::size_t peer, bool sends) const {
    switch (style_) {
      case queue_style::single: return device;
      case queue_style::per_peer: return device * devices_ + peer;
      case queue_style::per_direction: break;
    }
    return 2 * (device * devices_ + peer) + (sends ? 1 : 0);
  }
  [[nodiscard]] std::size_t count() const {
    return style_ == queue_style::single ? devices_ : devices_ * devices_ * (style_ == queue_style::per_peer ? 1 : 2);
  }

 private:
  std::size_t devices_;
  queue_style style_;
};

/// State of `simulate`: how far every device's list has run, and when everything ended.
template <class Lazy>
class replay {
 public:
  replay(const pipeline_problem& problem, const program& lists)
      : problem_{problem},
        lists_{lists},
        number_{problem},
        queue_{problem.devices, problem.queues.value_or(queue_style::per_direction)},
        next_(problem.devices, 0),
        computed_(problem.devices, 0),
        waited_(problem.devices, 0),
        queue_end_(queue_.count(), 0),
        done_(number_.count(), 0) {
    result_.spans.resize(number_.count());
  }

  std::optional<timeline> run() {
    std::vector<std::size_t> open;
    for (std::size_t d = 0; d < lists_.size(); ++d)
      open.push_back(d);
    while (!open.empty()) {
      const std::size_t d = open.back();
      open.pop_back();
      while (next_[d] < lists_[d].size()) {
        const program_step& step = lists_[d][next_[d]];
        const std::optional<std::size_t> released = advance(d, step);
        if (!released) break;
        if (*released != d) open.push_back(*released);
      }
    }
    for (std::size_t d = 0; d < lists_.size(); ++d)
      if (next_[d] < lists_[d].size()) return std::nullopt;
    return std::move(result_);
  }

 private:
  /// Runs one step if it can; returns the device that may go on because of it (d itself where no other), none where
  /// the step is blocked.
  std::optional<std::size_t> advance(std::size_t d, const program_step& step) {
    if (step.computes()) return compute(d, step);
    const std::size_t id = number_.of(step);
    if (step.what == program_step::action::wait_send || step.what == program_step::action::wait_recv) {
      if (!done_[id]) return std::nullopt;
      waited_[d] = std::max(waited_[d], result_.spans[id].end.value());
      ++next_[d];
      return d;
    }
    return meet(d, step, id);
  }

  std::optional<std::size_t> compute(std::size_t d, const program_step& step) {
    const std::size_t mb = index(step.mb);
    const std::size_t s = index(step.stage);
    const bool forward = step.what == program_step::action::forward;
    std::int64_t start = std::max(computed_[d], waited_[d]);
    const auto needs = [&](std::size_t id) {
      start = std::max(start, result_.spans[id].end.value());
      return done_[id] != 0;
    };
    const std::size_t last = problem_.stages() - 1;
    if (forward && s > 0 && !needs(problem_.joined(s - 1) ? number_.forward(mb, s - 1) : number_.activation(mb, s - 1)))
      return std::nullopt;
    if (!forward && !needs(number_.forward(mb, s))) return std::nullopt;
    if (!forward && s < last && !needs(problem_.joined(s) ? number_.backward(mb, s + 1) : number_.gradient(mb, s)))
      return std::nullopt;
    const stage_cost& cost = problem_.cost_of(mb, s);
    computed_[d] = finish(number_.of(step), start, forward ? cost.forward : cost.backward);
    waited_[d] = 0;
    ++next_[d];
    return d;
  }

  /// Runs a transfer if both of its devices have come to it.
  std::optional<std::size_t> meet(std::size_t d, const program_step& step, std::size_t id) {
    const std::size_t mb = index(step.mb);
    const bool activation = step.tensor == tensor_kind::activation;
    const bool sends = step.what == program_step::action::send;
    const std::size_t border = index(step.stage) - (activation == sends ? 0 : 1);
    const transfer_ends ends = ends_of(problem_, step.tensor, mb, border);
    const std::size_t peer = sends ? ends.target : ends.source;
    if (next_[peer] >= lists_[peer].size()) return std::nullopt;
    const program_step& other = lists_[peer][next_[peer]];
    if (other.computes() || other.what != (sends ? program_step::action::recv : program_step::action::send) ||
        number_.of(other) != id)
      return std::nullopt;
    const std::size_t producer = activation ? number_.forward(mb, border) : number_.backward(mb, border + 1);
    if (!done_[producer]) return std::nullopt;
    std::int64_t start = result_.spans[producer].end.value();
    if (problem_.queues) {
      std::int64_t& from = queue_end_[queue_.of(ends.source, ends.target, true)];
      std::int64_t& to = queue_end_[queue_.of(ends.target, ends.source, false)];
      start = std::max({start, from, to, computed_[ends.target], waited_[ends.target]});
      from = to = finish(id, start, ends.time);
    } else {
      finish(id, start, ends.time);
    }
    ++next_[d];
    ++next_[peer];
    return peer;
  }

  std::int64_t finish(std::size_t id, std::int64_t start, nanoseconds time) {
    const std::int64_t end = saturating_add(start, time.value());
    result_.spans[id] = {nanoseconds{start}, nanoseconds{end}};
    result_.makespan = std::max(result_.makespan, nanoseconds{end});
    done_[id] = 1;
    return end;
  }

  const pipeline_problem& problem_;
  const program& lists_;
  operation_index number_;
  queue_index queue_;
  std::vector<std::size_t> next_;
  std::vector<std::int64_t> computed_;  ///< end of a device's last compute operation
  std::vector<std::int64_t> waited_;    ///< latest end of the transfers waited for since
  std::vector<std::int64_t> queue_end_;
  std::vector<char> done_;
  timeline result_;
};

}  // namespace detail

/// The one place that turns orders into times: when every operation of `lists` runs.
///
/// Every operation starts as early as the rules allow. A compute operation waits for its inputs and for everything
/// before it in its device's list: compute operations, and transfers waited for. A transfer is one event for both ends;
/// it waits for its buffer to be produced, for its place in both ends' queues, and on the receiving side for compute
/// operations and waits before it. Where the problem has no queues, a transfer is a pure delay after its producer.
///
/// Method: the lists are walked as if every device had one queue and every transfer were a rendezvous. Whatever order
/// that walk takes, all that a start time depends on has been passed, so one pass gives all times.
///
/// Returns none where the walk stops: the program would deadlock on a device that has a single queue. O(steps), never
/// throws. Boundaries inside a device keep spans of 0.
template <class Lazy = void>
[[nodiscard]] std::optional<timeline> simulate(const pipeline_problem& problem, const program& lists) {
  DYNAPIPE_ASSERT(lists.size() == problem.devices);
  return detail::replay<Lazy>{problem, lists}.run();
}

}  // namespace dynapipe
