#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/plan/plan.hpp>
#include <dynapipe/plan/validate_batch.hpp>
#include <dynapipe/plan/violation.hpp>

namespace dynapipe::validation {

/// Stands for "nowhere" among positions.
inline constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

[[nodiscard]] constexpr bool is_compute(opcode op) {
  return op == opcode::forward || op == opcode::backward || op == opcode::backward_input ||
         op == opcode::backward_weight;
}
[[nodiscard]] constexpr bool is_transfer(opcode op) { return op == opcode::send || op == opcode::recv; }
[[nodiscard]] constexpr bool is_wait(opcode op) { return op == opcode::wait_send || op == opcode::wait_recv; }

/// A replica whose lists have the right lengths (`check_batch`), and the names of its places.
struct replica_view {
  const plan& all;
  std::size_t number;

  [[nodiscard]] const replica_plan& replica() const { return all.replicas[number]; }
  [[nodiscard]] std::size_t stages() const { return all.pipeline.stage_device.size(); }
  [[nodiscard]] std::size_t batches() const { return replica().micro_batches.size(); }
  [[nodiscard]] std::size_t devices() const { return replica().devices.size(); }
  [[nodiscard]] std::size_t device_of(std::size_t stage) const { return index(all.pipeline.stage_device[stage]); }
  [[nodiscard]] const std::vector<instruction>& program(std::size_t device) const {
    return replica().devices[device].instructions;
  }
  [[nodiscard]] const stage_cost& cost(const instruction& i) const {
    return replica().micro_batches[index(i.mb)].cost[index(i.stage)];
  }
  /// Position of (micro-batch, stage) in a table of all of them.
  [[nodiscard]] std::size_t cell(std::size_t batch, std::size_t stage) const { return batch * stages() + stage; }
  [[nodiscard]] std::size_t cell(const instruction& i) const { return cell(index(i.mb), index(i.stage)); }

  [[nodiscard]] std::string place(std::size_t device) const {
    return text("replicas[", number, "].devices[", device, "]");
  }
  [[nodiscard]] std::string place(std::size_t device, std::size_t position) const {
    return text(place(device), ".instructions[", position, "] (", to_string(program(device)[position].op), ")");
  }
};

/// The two stages that a transfer, or the wait for one, joins.
struct route {
  std::size_t boundary;  ///< the lower of the two stages
  std::size_t other;     ///< the stage at the other end; `nowhere` where the pipeline has none
};

template <class Lazy = void>
[[nodiscard]] route route_of(const replica_view& view, const instruction& i) {
  const bool outgoing = i.op == opcode::send || i.op == opcode::wait_send;
  const std::size_t stage = index(i.stage);
  if (outgoing == (i.tensor == tensor_kind::activation))
    return stage + 1 < view.stages() ? route{stage, stage + 1} : route{stage, nowhere};
  return stage > 0 ? route{stage - 1, stage - 1} : route{stage, nowhere};
}

/// Position of a transfer in a table of 2 * micro-batches * boundaries; only for a route that leads somewhere.
template <class Lazy = void>
[[nodiscard]] std::size_t transfer_of(const replica_view& view, std::size_t batch, std::size_t boundary,
                                      tensor_kind tensor) {
  return (batch * (view.stages() - 1) + boundary) * 2 + (tensor == tensor_kind::gradient ? 1 : 0);
}
template <class Lazy = void>
[[nodiscard]] std::size_t transfer_of(const replica_view& view, const instruction& i) {
  return transfer_of(view, index(i.mb), route_of(view, i).boundary, i.tensor);
}

/// How long a compute operation or transfer lasts by its costs.
template <class Lazy = void>
[[nodiscard]] nanoseconds duration_of(const replica_view& view, const instruction& i) {
  if (is_transfer(i.op)) {
    const boundary_cost& b = view.replica().micro_batches[index(i.mb)].boundary[route_of(view, i).boundary];
    return i.tensor == tensor_kind::activation ? b.forward : b.backward;
  }
  const stage_cost& c = view.cost(i);
  return i.op == opcode::forward ? c.forward : i.op == opcode::backward_weight ? c.weight : c.backward;
}

/// Where each operation of a replica stands in its device's list, `nowhere` if it does not. Tables of operations are
/// indexed by `replica_view::cell`, tables of transfers by `transfer_of`.
struct program_index {
  std::vector<std::size_t> forward, backward, weight;
  std::vector<std::size_t> sent, received;

  explicit program_index(const replica_view& view)
      : forward(view.batches() * view.stages(), nowhere),
        backward(forward),
        weight(forward),
        sent(view.batches() * (view.stages() - 1) * 2, nowhere),
        received(sent) {}

  [[nodiscard]] std::size_t& slot(const replica_view& view, const instruction& i) {
    switch (i.op) {
      case opcode::forward: return forward[view.cell(i)];
      case opcode::backward_weight: return weight[view.cell(i)];
      case opcode::send: return sent[transfer_of(view, i)];
      case opcode::recv: return received[transfer_of(view, i)];
      default: return backward[view.cell(i)];
    }
  }
};

/// Judges what an instruction says of itself: whether what it names exists and belongs to this device, its bytes and
/// its duration, and that it holds no field of another operation. Returns whether what it names exists.
template <class Lazy = void>
bool check_instruction(const replica_view& view, std::size_t device, std::size_t position, findings& found) {
  const instruction& i = view.program(device)[position];
  const auto here = [&] { return view.place(device, position); };
  const auto fail = [&](const auto&... parts) {
    found.add(here(), parts...);
    return false;
  };
  if (!known(opcode_names, i.op)) return fail("unknown operation ", i.op);

  const bool transfer = is_transfer(i.op);
  const bool compute = is_compute(i.op);
  const instruction blank;
  const bool lists = i.op == opcode::free || (compute && i.op != opcode::backward_weight);
  const bool creates = i.op == opcode::load || i.op == opcode::recv || (lists && compute);
  if ((!lists && !i.in.empty()) || (!creates && i.op != opcode::send && i.out != blank.out) ||
      (!transfer && i.op != opcode::load && i.size != blank.size) || (!creates && i.offset) ||
      (i.grads_ready && i.op != opcode::backward && i.op != opcode::backward_weight) ||
      (!transfer && !compute && (i.start != blank.start || i.end != blank.end)) ||
      (!transfer && !is_wait(i.op) && (i.peer != blank.peer || i.tensor != blank.tensor)) ||
      (i.op == opcode::free && (i.mb != blank.mb || i.stage != blank.stage)))
    found.add(here(), "holds a field that its operation does not have");
  if (i.op == opcode::free) return true;

  if (index(i.mb) >= view.batches()) return fail("there is no micro-batch ", i.mb);
  if (index(i.stage) >= view.stages()) return fail("there is no stage ", i.stage);
  if (view.device_of(index(i.stage)) != device)
    return fail("stage ", i.stage, " lives on device ", view.device_of(index(i.stage)));
  if (transfer || is_wait(i.op)) {
    if (!known(tensor_kind_names, i.tensor)) return fail("unknown tensor ", i.tensor);
    const route way = route_of(view, i);
    if (way.other == nowhere)
      return fail("stage ", i.stage, " has no stage on that side to exchange its ", to_string(i.tensor), " with");
    const std::size_t peer = view.device_of(way.other);
    if (peer == device) return fail("stages ", i.stage, " and ", way.other, " share a device and exchange no message");
    if (index(i.peer) != peer)
      return fail("names device ", i.peer, " as its peer, stage ", way.other, " lives on device ", peer);
    if (transfer) {
      const boundary_cost& b = view.replica().micro_batches[index(i.mb)].boundary[way.boundary];
      const bytes size = i.tensor == tensor_kind::activation ? b.forward_bytes : b.backward_bytes;
      if (i.size != size) found.add(here(), "moves ", i.size, " bytes, the boundary says ", size);
    }
  }
  if (transfer || compute) {
    const wide_int lasts = static_cast<wide_int>(i.end.value()) - i.start.value();
    const nanoseconds cost = duration_of(view, i);
    if (lasts != cost.value()) found.add(here(), "lasts ", lasts, " ns, its cost is ", cost);
  }
  return true;
}

/// Judges that each (micro-batch, stage) has one forward and one backward, whole or halved, and that each boundary
/// between devices is crossed once each way.
template <class Lazy = void>
void check_complete(const replica_view& view, const program_index& at, findings& found) {
  for (std::size_t m = 0; m < view.batches(); ++m)
    for (std::size_t s = 0; s < view.stages() && !found.full(); ++s) {
      const std::size_t cell = view.cell(m, s);
      const auto here = [&] { return text("replicas[", view.number, "].micro_batches[", m, "], stage ", s); };
      if (at.forward[cell] == nowhere) found.add(here(), "has no forward");
      if (at.backward[cell] == nowhere) {
        found.add(here(), "has no backward");
      } else {
        const bool whole = view.program(view.device_of(s))[at.backward[cell]].op == opcode::backward;
        if (whole && at.weight[cell] != nowhere) found.add(here(), "has a whole backward and a backward_weight");
        if (!whole && at.weight[cell] == nowhere) found.add(here(), "has a backward_input and no backward_weight");
        const nanoseconds weight = view.replica().micro_batches[m].cost[s].weight;
        if (whole && weight.value() != 0) found.add(here(), "has a whole backward and a weight_ns of ", weight);
      }
      if (s + 1 == view.stages() || view.device_of(s) == view.device_of(s + 1)) continue;
      for (const tensor_kind tensor : {tensor_kind::activation, tensor_kind::gradient}) {
        const std::size_t transfer = transfer_of(view, m, s, tensor);
        if (at.sent[transfer] == nowhere || at.received[transfer] == nowhere)
          found.add(here(), "its ", to_string(tensor), " to stage ", tensor == tensor_kind::activation ? s + 1 : s,
                    " is ",
                    at.sent[transfer] != nowhere       ? "sent and not received"
                    : at.received[transfer] != nowhere ? "received and not sent"
                                                       : "not moved");
      }
    }
}

/// Judges that for each directed pair of devices the messages are received in the order in which they are sent. Needs
/// a complete program. Complexity: n log n in messages.
template <class Lazy = void>
void check_message_order(const replica_view& view, const program_index& at, findings& found) {
  struct message {
    std::size_t from, to, sent, received;
  };
  std::vector<message> messages;
  for (std::size_t m = 0; m < view.batches(); ++m)
    for (std::size_t s = 0; s + 1 < view.stages(); ++s) {
      if (view.device_of(s) == view.device_of(s + 1)) continue;
      for (const tensor_kind tensor : {tensor_kind::activation, tensor_kind::gradient}) {
        const bool up = tensor == tensor_kind::activation;
        const std::size_t transfer = transfer_of(view, m, s, tensor);
        messages.push_back(
            {view.device_of(up ? s : s + 1), view.device_of(up ? s + 1 : s), at.sent[transfer], at.received[transfer]});
      }
    }
  std::sort(messages.begin(), messages.end(), [](const message& a, const message& b) {
    return a.from != b.from ? a.from < b.from : a.to != b.to ? a.to < b.to : a.sent < b.sent;
  });
  for (std::size_t k = 1; k < messages.size() && !found.full(); ++k) {
    const message& a = messages[k - 1];
    const message& b = messages[k];
    if (a.from == b.from && a.to == b.to && a.received > b.received)
      found.add(view.place(b.from, b.sent), "is sent after instruction ", a.sent, " and received before it by device ",
                b.to, " (at its instructions ", b.received, " and ", a.received, ")");
  }
}

/// Judges every instruction of a replica, and that together they do each micro-batch's work once. `legal[d]` tells
/// whether all of device d's instructions name what exists; the return value, whether the program is complete as well,
/// so that it can be replayed.
///
/// Complexity: linear in instructions and micro-batches times stages, n log n in messages.
template <class Lazy = void>
bool check_program(const replica_view& view, program_index& at, std::vector<bool>& legal, findings& found) {
  bool complete = true;
  for (std::size_t d = 0; d < view.devices(); ++d) {
    const std::vector<instruction>& program = view.program(d);
    for (std::size_t n = 0; n < program.size() && !found.full(); ++n) {
      const instruction& i = program[n];
      if (!check_instruction(view, d, n, found)) {
        legal[d] = complete = false;
      } else if (is_compute(i.op) || is_transfer(i.op)) {
        std::size_t& slot = at.slot(view, i);
        if (slot != nowhere) {
          found.add(view.place(d, n), "does the work of instruction ", slot, " again");
          complete = false;
        } else {
          slot = n;
        }
      }
    }
  }
  if (found.full() || !complete) return false;
  const std::size_t before = found.count();
  check_complete(view, at, found);
  if (found.count() != before) return false;
  check_message_order(view, at, found);
  return true;
}

}  // namespace dynapipe::validation
