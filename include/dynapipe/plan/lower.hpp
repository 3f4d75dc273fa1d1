#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/plan/plan.hpp>
#include <dynapipe/schedule/problem.hpp>
#include <dynapipe/schedule/program.hpp>

namespace dynapipe {

namespace detail {

/// Turns one device's list of steps into instructions with buffers.
template <class Lazy>
class device_lowering {
 public:
  device_lowering(const pipeline_problem& problem, const timeline& times, bytes fixed)
      : problem_{problem},
        times_{times},
        number_{problem},
        memory_{fixed},
        peak_{fixed},
        activation_(problem.micro_batches * problem.stages(), buffer_id::none),
        loaded_(activation_),
        gradient_(activation_),
        sent_(number_.count(), buffer_id::none),
        last_backward_(problem.stages(), none) {}

  std::pair<std::vector<instruction>, bytes> run(const std::vector<program_step>& steps) {
    for (const program_step& step : steps) {
      switch (step.what) {
        case program_step::action::forward: forward(step); break;
        case program_step::action::backward: backward(step); break;
        case program_step::action::send:
        case program_step::action::recv: transfer(step); break;
        case program_step::action::wait_send:
        case program_step::action::wait_recv: wait(step); break;
      }
    }
    for (const std::size_t at : last_backward_)
      if (at != none) out_[at].grads_ready = true;
    return {std::move(out_), peak_};
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  [[nodiscard]] std::size_t cell(const program_step& step) const {
    return index(step.mb) * problem_.stages() + index(step.stage);
  }

  buffer_id allocate(bytes size) {
    sizes_.push_back(size);
    memory_ += size;
    peak_ = std::max(peak_, memory_);
    return to_id<buffer_id>(sizes_.size() - 1);
  }
  void release(std::vector<buffer_id> buffers) {
    std::erase(buffers, buffer_id::none);
    if (buffers.empty()) return;
    for (const buffer_id b : buffers)
      memory_ -= sizes_[index(b)];
    out_.push_back({.op = opcode::free, .in = std::move(buffers)});
  }
  instruction start(opcode op, const program_step& step) const {
    const time_span& span = times_.spans[number_.of(step)];
    return {.op = op, .mb = step.mb, .stage = step.stage, .start = span.start, .end = span.end};
  }

  void forward(const program_step& step) {
    const std::size_t mb = index(step.mb);
    const std::size_t s = index(step.stage);
    const stage_cost& cost = problem_.cost_of(mb, s);
    instruction run = start(opcode::forward, step);
    if (s > 0) run.in.push_back(activation_[cell(step)]);
    if (const bytes size = problem_.load_of(mb, s); size > bytes{0}) {
      const buffer_id buffer = allocate(size);
      out_.push_back({.op = opcode::load, .mb = step.mb, .stage = step.stage, .out = buffer, .size = size});
      loaded_[cell(step)] = buffer;
      run.in.push_back(buffer);
    }
    if (s + 1 < problem_.stages()) {
      run.out = allocate(problem_.hop(mb, s).forward_bytes);
      (problem_.joined(s) ? activation_[cell(step) + 1] : sent_[number_.activation(mb, s)]) = run.out;
    }
    out_.push_back(std::move(run));
    peak_ = std::max(peak_, memory_ + cost.forward_peak);
    memory_ += cost.stored;
  }

  void backward(const program_step& step) {
    const std::size_t mb = index(step.mb);
    const std::size_t s = index(step.stage);
    const stage_cost& cost = problem_.cost_of(mb, s);
    instruction run = start(opcode::backward, step);
    if (s + 1 < problem_.stages()) run.in.push_back(gradient_[cell(step)]);
    if (s > 0) {
      run.out = allocate(problem_.hop(mb, s - 1).backward_bytes);
      (problem_.joined(s - 1) ? gradient_[cell(step) - 1] : sent_[number_.gradient(mb, s - 1)]) = run.out;
    }
    last_backward_[s] = out_.size();
    out_.push_back(std::move(run));
    peak_ = std::max(peak_, memory_ + cost.backward_peak);
    memory_ -= cost.stored;
    release({loaded_[cell(step)], activation_[cell(step)], gradient_[cell(step)]});
  }

  [[nodiscard]] device_id peer_of(const program_step& step) const {
    const bool up = (step.tensor == tensor_kind::activation) == step.sends();
    return problem_.stage_device[up ? index(step.stage) + 1 : index(step.stage) - 1];
  }

  void transfer(const program_step& step) {
    const bool sends = step.what == program_step::action::send;
    const bool activation = step.tensor == tensor_kind::activation;
    instruction move = start(sends ? opcode::send : opcode::recv, step);
    const hop_cost& hop = problem_.hop(index(step.mb), index(step.stage) - (activation == sends ? 0 : 1));
    move.peer = peer_of(step);
    move.tensor = step.tensor;
    move.size = activation ? hop.forward_bytes : hop.backward_bytes;
    if (sends) {
      move.out = sent_[number_.of(step)];
    } else {
      move.out = allocate(move.size);
      (activation ? activation_ : gradient_)[cell(step)] = move.out;
    }
    out_.push_back(std::move(move));
  }

  void wait(const program_step& step) {
    const bool sends = step.what == program_step::action::wait_send;
    out_.push_back({.op = sends ? opcode::wait_send : opcode::wait_recv,
                    .mb = step.mb,
                    .stage = step.stage,
                    .peer = peer_of(step),
                    .tensor = step.tensor});
    if (sends) release({sent_[number_.of(step)]});
  }

  const pipeline_problem& problem_;
  const timeline& times_;
  operation_index number_;
  bytes memory_;
  bytes peak_;
  std::vector<bytes> sizes_;           ///< by buffer
  std::vector<buffer_id> activation_;  ///< input of a forward, by micro-batch and stage
  std::vector<buffer_id> loaded_;
  std::vector<buffer_id> gradient_;  ///< input of a backward
  std::vector<buffer_id> sent_;      ///< by transfer
  std::vector<std::size_t> last_backward_;
  std::vector<instruction> out_;
};

}  // namespace detail

/// The devices of one replica: instructions with buffers, loads and frees from a program and its times.
///
/// Tokens are loaded right before the forward that reads them; a buffer is freed right after its last use: inputs after
/// their backward, sent buffers after the wait for their transfer. `fixed` is each device's memory for the model's
/// state; capacities become `fixed` plus the problem's. Buffers are numbered in order of appearance. O(steps).
template <class Lazy = void>
[[nodiscard]] std::vector<device_plan> lower(const pipeline_problem& problem, const program& lists,
                                             const timeline& times, const std::vector<bytes>& fixed) {
  DYNAPIPE_ASSERT(lists.size() == problem.devices && fixed.size() == problem.devices);
  std::vector<device_plan> devices(problem.devices);
  for (std::size_t d = 0; d < problem.devices; ++d) {
    device_plan& device = devices[d];
    device.capacity = fixed[d] + problem.capacity[d];
    device.fixed = fixed[d];
    std::tie(device.instructions, device.peak) = detail::device_lowering<Lazy>{problem, times, fixed[d]}.run(lists[d]);
  }
  return devices;
}

}  // namespace dynapipe
