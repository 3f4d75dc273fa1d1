#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/plan/plan.hpp>
#include <dynapipe/plan/validate_program.hpp>
#include <dynapipe/plan/violation.hpp>

namespace dynapipe::validation {

/// Replays a replica in the strictest world, and clocks it in the plan's own.
///
/// Order: every device does its list one instruction after another; a transfer happens when both ends stand at it. An
/// instruction that has to wait never becomes impossible by what others do, so any order of advancing the devices ends
/// at the same place: all lists done, or a set of devices that wait for one another. The first holds exactly if the
/// graph of all order constraints (lists, rendezvous, data) has no cycle.
///
/// Time: the order in which instructions happen here respects every queue of the plan's own world, because a queue
/// holds its operations in list order. So the start of each is known when it happens: the latest of its queue's last
/// end, its inputs' ends, and, except for a send, the ends of all computations and waited transfers before it in the
/// list. Sums are of 128 bits and do not overflow.
///
/// Needs a complete program (`check_program`). Complexity: linear in instructions, k log k in stages.
template <class Lazy>
class replay {
 public:
  replay(const replica_view& view, const program_index& at)
      : view_{view},
        at_{at},
        cursor_(view.devices(), 0),
        point_(view.devices(), 0),
        forward_end_(at.forward.size()),
        backward_end_(at.forward.size()),
        transfer_end_(at.sent.size()) {
    for (std::size_t s = 0; s + 1 < view.stages(); ++s) {
      pairs_.emplace_back(view.device_of(s), view.device_of(s + 1));
      pairs_.emplace_back(view.device_of(s + 1), view.device_of(s));
    }
    std::sort(pairs_.begin(), pairs_.end());
    pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
    queue_.resize(view.all.pipeline.queues == queue_style::single ? view.devices() : 2 * pairs_.size(), 0);
    for (std::size_t s = 0; s + 1 < view.stages(); ++s) {
      up_.push_back(pair_index(view.device_of(s), view.device_of(s + 1)));
      down_.push_back(pair_index(view.device_of(s + 1), view.device_of(s)));
    }
  }

  /// The last end of the replica's operations; nothing, and a violation with the chain of waiting devices, if some can
  /// never happen. Times that the plan states wrongly are one violation, at the earliest of them.
  std::optional<wide_int> run(findings& found) {
    std::vector<std::size_t> work;
    for (std::size_t d = view_.devices(); d > 0; --d)
      work.push_back(d - 1);
    while (!work.empty()) {
      const std::size_t d = work.back();
      work.pop_back();
      while (cursor_[d] < view_.program(d).size() && happens(d, work)) {
      }
    }
    for (std::size_t d = 0; d < view_.devices(); ++d)
      if (cursor_[d] < view_.program(d).size()) {
        found.add(text("replicas[", view_.number, "]"), "deadlock: ", shortest_cycle());
        return std::nullopt;
      }
    if (wrong_ > 0) {
      const instruction& i = view_.program(first_.device)[first_.position];
      found.add(view_.place(first_.device, first_.position), "runs from ", first_.start, " to ", first_.end,
                " ns, the plan states ", i.start, " to ", i.end,
                wrong_ > 1 ? text(" (the earliest of ", wrong_, " wrong times)") : std::string{});
    }
    return span_;
  }

 private:
  struct moment {
    wide_int at = 0;
    bool known = false;
  };
  struct spot {
    std::size_t device = 0;
    std::size_t position = 0;
    wide_int start = 0;
    wide_int end = 0;
  };

  std::size_t pair_index(std::size_t from, std::size_t to) const {
    return static_cast<std::size_t>(std::lower_bound(pairs_.begin(), pairs_.end(), std::pair{from, to}) -
                                    pairs_.begin());
  }

  /// The last end in the queue of one end of a transfer.
  wide_int& queue(std::size_t device, const instruction& i) {
    if (view_.all.pipeline.queues == queue_style::single) return queue_[device];
    const route way = route_of(view_, i);
    const std::size_t pair = index(i.stage) == way.boundary ? up_[way.boundary] : down_[way.boundary];
    return queue_[2 * pair + (view_.all.pipeline.queues == queue_style::per_direction && i.op == opcode::recv ? 1 : 0)];
  }

  /// What has to have happened before a compute operation: the positions in its own device's list, `nowhere` for none.
  struct needs {
    const moment* ready[2] = {nullptr, nullptr};
    std::size_t position[2] = {nowhere, nowhere};
  };
  needs needs_of(std::size_t device, const instruction& i) const {
    const std::size_t cell = view_.cell(i);
    const std::size_t stage = index(i.stage);
    needs all;
    const auto from_stage = [&](std::size_t k, std::size_t other, tensor_kind tensor) {
      const bool up = tensor == tensor_kind::activation;
      if (view_.device_of(other) == device) {
        const std::size_t there = view_.cell(index(i.mb), other);
        all.ready[k] = up ? &forward_end_[there] : &backward_end_[there];
        all.position[k] = up ? at_.forward[there] : at_.backward[there];
      } else {
        const std::size_t transfer = transfer_of(view_, index(i.mb), up ? other : stage, tensor);
        all.ready[k] = &transfer_end_[transfer];
        all.position[k] = at_.received[transfer];
      }
    };
    if (i.op == opcode::forward) {
      if (stage > 0) from_stage(0, stage - 1, tensor_kind::activation);
    } else if (i.op == opcode::backward_weight) {
      all.ready[0] = &backward_end_[cell];
      all.position[0] = at_.backward[cell];
    } else {
      all.ready[0] = &forward_end_[cell];
      all.position[0] = at_.forward[cell];
      if (stage + 1 < view_.stages()) from_stage(1, stage + 1, tensor_kind::gradient);
    }
    return all;
  }
  /// What produces the buffer of a send, on the sender's device.
  std::pair<const moment*, std::size_t> producer(const instruction& send) const {
    const std::size_t cell = view_.cell(send);
    return send.tensor == tensor_kind::activation ? std::pair{&forward_end_[cell], at_.forward[cell]}
                                                  : std::pair{&backward_end_[cell], at_.backward[cell]};
  }

  /// Does the next instruction of `device` if it can happen now; devices that can go on by it join `work`.
  bool happens(std::size_t device, std::vector<std::size_t>& work) {
    const std::size_t position = cursor_[device];
    const instruction& i = view_.program(device)[position];
    if (is_compute(i.op)) {
      wide_int start = point_[device];
      for (const moment* input : needs_of(device, i).ready) {
        if (input == nullptr) continue;
        if (!input->known) return false;
        start = std::max(start, input->at);
      }
      const wide_int end = start + duration_of(view_, i).value();
      if (i.op != opcode::backward_weight)
        (i.op == opcode::forward ? forward_end_ : backward_end_)[view_.cell(i)] = {end, true};
      point_[device] = std::max(point_[device], end);
      note(device, position, start, end);
    } else if (is_transfer(i.op)) {
      const std::size_t peer = index(i.peer);
      const std::size_t transfer = transfer_of(view_, i);
      const bool sends = i.op == opcode::send;
      const std::size_t partner = (sends ? at_.received : at_.sent)[transfer];
      if (cursor_[peer] != partner) return false;
      const instruction& other = view_.program(peer)[partner];
      const auto [produced, unused] = producer(sends ? i : other);
      if (!produced->known) return false;
      wide_int& queue_here = queue(device, i);
      wide_int& queue_there = queue(peer, other);
      const wide_int start = std::max({queue_here, queue_there, produced->at, point_[sends ? peer : device]});
      const wide_int end = start + duration_of(view_, i).value();
      transfer_end_[transfer] = {end, true};
      queue_here = queue_there = end;
      note(device, position, start, end);
      note(peer, partner, start, end);
      ++cursor_[peer];
      work.push_back(peer);
    } else if (is_wait(i.op)) {
      const moment& done = transfer_end_[transfer_of(view_, i)];
      if (!done.known) return false;
      point_[device] = std::max(point_[device], done.at);
    }
    ++cursor_[device];
    return true;
  }

  void note(std::size_t device, std::size_t position, wide_int start, wide_int end) {
    span_ = std::max(span_, end);
    const instruction& i = view_.program(device)[position];
    if (i.start.value() == start && i.end.value() == end) return;
    if (wrong_ == 0 || start < first_.start) first_ = {device, position, start, end};
    ++wrong_;
  }

  /// What the next instruction of a device that cannot go on waits for.
  spot blocker(std::size_t device) const {
    const instruction& i = view_.program(device)[cursor_[device]];
    if (is_compute(i.op)) {
      const needs all = needs_of(device, i);
      return {.device = device, .position = all.position[all.ready[0] != nullptr && !all.ready[0]->known ? 0 : 1]};
    }
    const std::size_t transfer = transfer_of(view_, i);
    if (is_wait(i.op))
      return {.device = device, .position = (i.op == opcode::wait_send ? at_.sent : at_.received)[transfer]};
    if (i.op == opcode::send && !producer(i).first->known) return {.device = device, .position = producer(i).second};
    return {.device = index(i.peer), .position = (i.op == opcode::send ? at_.received : at_.sent)[transfer]};
  }

  /// Every device that cannot go on waits for one device; the shortest cycle among them, in words.
  std::string shortest_cycle() const {
    std::vector<std::size_t> seen(view_.devices(), nowhere);
    std::vector<std::size_t> best;
    for (std::size_t begin = 0; begin < view_.devices(); ++begin) {
      std::vector<std::size_t> path;
      std::size_t d = begin;
      while (cursor_[d] < view_.program(d).size() && seen[d] == nowhere) {
        seen[d] = begin;
        path.push_back(d);
        d = blocker(d).device;
      }
      if (path.empty() || seen[d] != begin) continue;
      path.erase(path.begin(), std::find(path.begin(), path.end(), d));
      if (best.empty() || path.size() < best.size()) best = path;
    }
    std::string chain;
    for (const std::size_t d : best) {
      const spot next = blocker(d);
      if (!chain.empty()) chain += "; ";
      chain +=
          text("device ", d, " stands at instruction ", cursor_[d], " (", words(d, cursor_[d]), ") and waits for ");
      chain += next.device == d ? std::string{"its own"} : text("device ", next.device, "'s");
      chain += text(" instruction ", next.position, " (", words(next.device, next.position), ")");
    }
    return chain;
  }
  std::string words(std::size_t device, std::size_t position) const {
    const instruction& i = view_.program(device)[position];
    std::string all{to_string(i.op)};
    if (is_transfer(i.op) || is_wait(i.op)) all += text(" of the ", to_string(i.tensor));
    return all + text(" of micro-batch ", i.mb, " at stage ", i.stage);
  }

  const replica_view& view_;
  const program_index& at_;
  std::vector<std::size_t> cursor_;
  std::vector<wide_int> point_;  ///< by device: end of all computations and waited transfers so far
  std::vector<moment> forward_end_, backward_end_, transfer_end_;
  std::vector<std::pair<std::size_t, std::size_t>> pairs_;  ///< (device, peer) that exchange messages
  std::vector<std::size_t> up_, down_;  ///< by boundary: its pair as the lower and upper stage see it
  std::vector<wide_int> queue_;         ///< last end; by device, or two for each of `pairs_`
  wide_int span_ = 0;
  spot first_;
  std::size_t wrong_ = 0;
};

}  // namespace dynapipe::validation
