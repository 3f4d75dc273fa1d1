#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/names.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/stage.hpp>
#include <dynapipe/schedule/kinds.hpp>

namespace dynapipe {

/// What an instruction tells a device to do. `backward_input` and `backward_weight` are the halves of a split backward.
enum class opcode : std::uint8_t {
  load,
  forward,
  backward,
  backward_input,
  backward_weight,
  send,
  recv,
  wait_send,
  wait_recv,
  free
};

inline constexpr name_table<opcode, 10> opcode_names{{{opcode::load, "load"},
                                                      {opcode::forward, "forward"},
                                                      {opcode::backward, "backward"},
                                                      {opcode::backward_input, "backward_input"},
                                                      {opcode::backward_weight, "backward_weight"},
                                                      {opcode::send, "send"},
                                                      {opcode::recv, "recv"},
                                                      {opcode::wait_send, "wait_send"},
                                                      {opcode::wait_recv, "wait_recv"},
                                                      {opcode::free, "free"}}};

/// Whether an operation occupies its device's compute queue.
[[nodiscard]] constexpr bool computes(opcode op) { return op >= opcode::forward && op <= opcode::backward_weight; }

[[nodiscard]] constexpr std::string_view to_string(opcode value) { return name_in(opcode_names, value); }

/// One step of a device. Fields that an `op` does not use keep their defaults.
struct instruction {
  opcode op = opcode::free;
  micro_batch_id mb{0};                          ///< all but `free`
  stage_id stage{0};                             ///< all but `free`; of this device, also for a receive
  device_id peer{0};                             ///< transfers and waits
  tensor_kind tensor = tensor_kind::activation;  ///< transfers and waits
  std::vector<buffer_id> in{};                   ///< forward, backward: inputs; `free`: the dead buffers
  buffer_id out = buffer_id::none;               ///< load, recv, forward, backward: the new buffer; send: the sent
  bytes size{0};                                 ///< load, send, recv: bytes of `out`
  std::optional<bytes> offset{};                 ///< of a new buffer in the arena, where there is one
  bool grads_ready = false;                      ///< backward, backward_weight: the stage's gradients are final
  nanoseconds start{0};                          ///< compute and transfers
  nanoseconds end{0};

  friend bool operator==(const instruction&, const instruction&) = default;
};

/// A micro-batch as planned. A dummy has no samples and no loss; it only keeps counts equal.
struct planned_micro_batch {
  std::vector<std::vector<sample_id>> samples;  ///< rows; several samples in one row are packed in that order
  std::int64_t rows = 0;
  std::int64_t input_length = 0;
  std::int64_t target_length = 0;
  std::int64_t loss_tokens = 0;
  bool dummy = false;
  std::vector<stage_cost> cost;         ///< one for each stage
  std::vector<boundary_cost> boundary;  ///< between stage s and s + 1

  friend bool operator==(const planned_micro_batch&, const planned_micro_batch&) = default;
};

/// What one device of one replica does, in issue order, and its memory.
struct device_plan {
  bytes capacity{0};
  bytes fixed{0};  ///< weights, gradients, optimizer states, reserve
  bytes peak{0};
  std::optional<bytes> arena;  ///< room for all buffers; none: buffers are allocated one by one
  std::vector<instruction> instructions;

  friend bool operator==(const device_plan&, const device_plan&) = default;
};

struct replica_plan {
  nanoseconds predicted{0};
  std::vector<planned_micro_batch> micro_batches;
  std::vector<device_plan> devices;

  friend bool operator==(const replica_plan&, const replica_plan&) = default;
};

/// How the model is cut and what every replica has in common.
struct pipeline_plan {
  std::int64_t devices = 0;
  std::vector<stage_spec> stages;
  dtype type = dtype::bf16;
  std::vector<device_id> stage_device;
  std::string schedule;
  std::optional<recompute_mode> recompute = recompute_mode::none;  ///< none: mixed, each cost says its own
  std::int64_t tensor_parallel = 1;
  std::int64_t context_parallel = 1;
  queue_style queues = queue_style::per_direction;

  friend bool operator==(const pipeline_plan&, const pipeline_plan&) = default;
};

/// Where a plan comes from, enough to make it again.
struct plan_provenance {
  std::string version;
  model_spec model;
  cluster_spec cluster;
  std::string cost_source;
  std::int64_t cost_epoch = 0;
  std::vector<std::pair<std::string, std::string>> options;  ///< name and value

  friend bool operator==(const plan_provenance&, const plan_provenance&) = default;
};

/// Everything that a global batch needs to be trained: a value, made by `planner` and judged by `validate`.
struct plan {
  plan_provenance provenance;
  std::vector<sample_lengths> lengths;  ///< by sample id
  std::vector<std::int64_t> source_rows;
  std::vector<sample_id> dropped;
  batch_layout layout = batch_layout::padded;
  pipeline_plan pipeline;
  nanoseconds predicted{0};    ///< the slowest replica's pipeline
  nanoseconds sync{0};         ///< gradient synchronisation that no pipeline hides
  nanoseconds iteration{0};    ///< predicted + sync
  nanoseconds lower_bound{0};  ///< no schedule of these micro-batches on these devices is faster
  std::vector<replica_plan> replicas;

  /// What one device of one replica runs.
  [[nodiscard]] const std::vector<instruction>& program(replica_id replica, device_id device) const {
    return replicas[index(replica)].devices[index(device)].instructions;
  }

  friend bool operator==(const plan&, const plan&) = default;
};

}  // namespace dynapipe
