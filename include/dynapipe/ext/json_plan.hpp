#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dynapipe/core/error.hpp>
#include <dynapipe/ext/files.hpp>
#include <dynapipe/ext/json_model.hpp>
#include <dynapipe/ext/json_reader.hpp>
#include <dynapipe/plan/plan.hpp>

namespace dynapipe {

namespace json_detail {

/// `items` between brackets, each by `one(item)`, with `between` around and after the commas.
template <class List, class One>
void put_list(std::string& out, const List& items, std::string_view between, One one) {
  out += '[';
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ',';
    first = false;
    out += between;
    one(item);
  }
  out += ']';
}
template <class List>
void put_list(std::string& out, const List& items) {
  put_list(out, items, "", [&](const auto& item) { put(out, item); });
}

inline void put_buffer(std::string& out, buffer_id buffer) {
  if (buffer == buffer_id::none)
    out += "null";
  else
    put(out, buffer);
}
inline void put_bytes(std::string& out, const std::optional<bytes>& amount) {
  if (amount)
    put(out, *amount);
  else
    out += "null";
}

inline void put_instruction(std::string& out, const instruction& i) {
  put(out, R"({"op":")", to_string(i.op), "\"");
  if (i.op == opcode::free) {
    out += R"(,"buffers":)";
    put_list(out, i.in);
    out += '}';
    return;
  }
  put(out, R"(,"mb":)", i.mb, R"(,"stage":)", i.stage);
  const auto offset = [&] {
    out += R"(,"offset":)";
    put_bytes(out, i.offset);
  };
  const auto times = [&] { put(out, R"(,"start_ns":)", i.start, R"(,"end_ns":)", i.end); };
  const auto ready = [&] { put(out, R"(,"grads_ready":)", truth(i.grads_ready)); };
  switch (i.op) {
    case opcode::load:
      put(out, R"(,"buffer":)", i.out, R"(,"bytes":)", i.size);
      offset();
      break;
    case opcode::forward:
    case opcode::backward:
    case opcode::backward_input:
      out += R"(,"in":)";
      if (i.op == opcode::forward)
        put_list(out, i.in);
      else
        put_buffer(out, i.in.empty() ? buffer_id::none : i.in.front());
      out += R"(,"out":)";
      put_buffer(out, i.out);
      offset();
      if (i.op == opcode::backward) ready();
      times();
      break;
    case opcode::backward_weight:
      ready();
      times();
      break;
    case opcode::send:
    case opcode::recv:
      put(out, R"(,"peer":)", i.peer, R"(,"tensor":")", to_string(i.tensor), R"(","buffer":)", i.out, R"(,"bytes":)",
          i.size);
      if (i.op == opcode::recv) offset();
      times();
      break;
    default: put(out, R"(,"peer":)", i.peer, R"(,"tensor":")", to_string(i.tensor), "\""); break;
  }
  out += '}';
}

inline void put_micro_batch(std::string& out, const planned_micro_batch& batch) {
  out += R"({"samples":)";
  put_list(out, batch.samples, "", [&](const std::vector<sample_id>& row) { put_list(out, row); });
  put(out, R"(,"rows":)", batch.rows, R"(,"input_length":)", batch.input_length, R"(,"target_length":)",
      batch.target_length, R"(,"loss_tokens":)", batch.loss_tokens, R"(,"dummy":)", truth(batch.dummy), R"(,"cost":)");
  put_list(out, batch.cost, "\n", [&](const stage_cost& c) {
    put(out, R"({"forward_ns":)", c.forward, R"(,"backward_ns":)", c.backward, R"(,"weight_ns":)", c.weight,
        R"(,"stored_bytes":)", c.stored, R"(,"weight_stored_bytes":)", c.weight_stored, R"(,"forward_peak_bytes":)",
        c.forward_peak, R"(,"backward_peak_bytes":)", c.backward_peak, R"(,"recompute":")", to_string(c.recompute),
        "\"}");
  });
  out += R"(,"boundary":)";
  put_list(out, batch.boundary, "\n", [&](const boundary_cost& b) {
    out += R"({"tensors":)";
    put_list(out, b.tensors, "", [&](const auto& tensor) { put_list(out, tensor); });
    put(out, R"(,"forward_bytes":)", b.forward_bytes, R"(,"forward_ns":)", b.forward, R"(,"backward_bytes":)",
        b.backward_bytes, R"(,"backward_ns":)", b.backward, "}");
  });
  out += '}';
}

inline void put_pipeline(std::string& out, const pipeline_plan& pipe) {
  put(out, R"({"devices":)", pipe.devices, R"(,"stages":)");
  put_list(out, pipe.stages, "\n", [&](const stage_spec& stage) {
    put(out, R"({"encoder":[)", stage.encoder.from, ",", stage.encoder.to, R"(],"decoder":[)", stage.decoder.from, ",",
        stage.decoder.to, R"(],"embedding":)", truth(stage.embedding), R"(,"head":)", truth(stage.head), "}");
  });
  put(out, R"(,"dtype":")", to_string(pipe.type), R"(","stage_device":)");
  put_list(out, pipe.stage_device);
  put(out, R"(,"schedule":)", quoted(pipe.schedule), R"(,"recompute":")",
      pipe.recompute ? to_string(*pipe.recompute) : "mixed", R"(","tensor_parallel":)", pipe.tensor_parallel,
      R"(,"context_parallel":)", pipe.context_parallel, R"(,"queues":")", to_string(pipe.queues), "\"}");
}

inline void put_provenance(std::string& out, const plan_provenance& from) {
  put(out, R"({"dynapipe":)", quoted(from.version), ",\n\"model\":");
  put_model(out, from.model);
  out += ",\n\"cluster\":";
  put_cluster(out, from.cluster);
  put(out, ",\n\"costs\":{\"source\":", quoted(from.cost_source), R"(,"epoch":)", from.cost_epoch, "},\n\"options\":{");
  bool first = true;
  for (const auto& [name, value] : from.options) {
    put(out, first ? "" : ",", quoted(name), ":", quoted(value));
    first = false;
  }
  out += "}}";
}

[[nodiscard]] inline std::optional<bytes> read_offset(const reader& in, const char* key) {
  const reader value = in[key];
  if (value.is_null()) return std::nullopt;
  return value.size_in_bytes();
}
[[nodiscard]] inline buffer_id read_buffer(const reader& in) {
  return in.is_null() ? buffer_id::none : in.id<buffer_id>();
}

[[nodiscard]] inline instruction read_instruction(const reader& in) {
  instruction i;
  i.op = in["op"].word(opcode_names);
  if (i.op == opcode::free) {
    in.allow_only({"op", "buffers"});
    i.in = in["buffers"].list([](const reader& buffer) { return buffer.id<buffer_id>(); });
    return i;
  }
  i.mb = in["mb"].id<micro_batch_id>();
  i.stage = in["stage"].id<stage_id>();
  const auto times = [&] {
    i.start = in["start_ns"].time();
    i.end = in["end_ns"].time();
  };
  const auto address = [&] {
    i.peer = in["peer"].id<device_id>();
    i.tensor = in["tensor"].word(tensor_kind_names);
  };
  switch (i.op) {
    case opcode::load:
      in.allow_only({"op", "mb", "stage", "buffer", "bytes", "offset"});
      i.out = in["buffer"].id<buffer_id>();
      i.size = in["bytes"].size_in_bytes();
      i.offset = read_offset(in, "offset");
      break;
    case opcode::forward:
    case opcode::backward:
    case opcode::backward_input:
      if (i.op == opcode::backward)
        in.allow_only({"op", "mb", "stage", "in", "out", "offset", "grads_ready", "start_ns", "end_ns"});
      else
        in.allow_only({"op", "mb", "stage", "in", "out", "offset", "start_ns", "end_ns"});
      if (i.op == opcode::forward)
        i.in = in["in"].list([](const reader& buffer) { return buffer.id<buffer_id>(); });
      else if (const buffer_id gradient = read_buffer(in["in"]); gradient != buffer_id::none)
        i.in = {gradient};
      i.out = read_buffer(in["out"]);
      if (i.out != buffer_id::none || in.find("offset")) i.offset = read_offset(in, "offset");
      if (i.op == opcode::backward) i.grads_ready = in["grads_ready"].boolean();
      times();
      break;
    case opcode::backward_weight:
      in.allow_only({"op", "mb", "stage", "grads_ready", "start_ns", "end_ns"});
      i.grads_ready = in["grads_ready"].boolean();
      times();
      break;
    case opcode::send:
    case opcode::recv:
      if (i.op == opcode::send)
        in.allow_only({"op", "mb", "stage", "peer", "tensor", "buffer", "bytes", "start_ns", "end_ns"});
      else
        in.allow_only({"op", "mb", "stage", "peer", "tensor", "buffer", "bytes", "offset", "start_ns", "end_ns"});
      address();
      i.out = in["buffer"].id<buffer_id>();
      i.size = in["bytes"].size_in_bytes();
      if (i.op == opcode::recv) i.offset = read_offset(in, "offset");
      times();
      break;
    default:
      in.allow_only({"op", "mb", "stage", "peer", "tensor"});
      address();
      break;
  }
  return i;
}

[[nodiscard]] inline stage_cost read_cost(const reader& in) {
  in.allow_only({"forward_ns", "backward_ns", "weight_ns", "stored_bytes", "weight_stored_bytes", "forward_peak_bytes",
                 "backward_peak_bytes", "recompute"});
  return {.forward = in["forward_ns"].time(),
          .backward = in["backward_ns"].time(),
          .weight = in["weight_ns"].time(),
          .stored = in["stored_bytes"].size_in_bytes(),
          .weight_stored = in["weight_stored_bytes"].size_in_bytes(),
          .forward_peak = in["forward_peak_bytes"].size_in_bytes(),
          .backward_peak = in["backward_peak_bytes"].size_in_bytes(),
          .recompute = in["recompute"].word(recompute_names)};
}

/// A list of exactly N integers.
template <std::size_t N>
[[nodiscard]] std::array<std::int64_t, N> read_tuple(const reader& in) {
  if (in.size() != N)
    in.fail("must be " + std::to_string(N) + " integers, has " + std::to_string(in.size()) + " entries");
  std::array<std::int64_t, N> all{};
  for (std::size_t k = 0; k < N; ++k)
    all[k] = in.element(k).integer();
  return all;
}

[[nodiscard]] inline boundary_cost read_boundary(const reader& in) {
  in.allow_only({"tensors", "forward_bytes", "forward_ns", "backward_bytes", "backward_ns"});
  return {.tensors = in["tensors"].list(read_tuple<3>),
          .forward_bytes = in["forward_bytes"].size_in_bytes(),
          .forward = in["forward_ns"].time(),
          .backward_bytes = in["backward_bytes"].size_in_bytes(),
          .backward = in["backward_ns"].time()};
}

[[nodiscard]] inline planned_micro_batch read_micro_batch(const reader& in) {
  in.allow_only({"samples", "rows", "input_length", "target_length", "loss_tokens", "dummy", "cost", "boundary"});
  return {.samples = in["samples"].list(
              [](const reader& row) { return row.list([](const reader& sample) { return sample.id<sample_id>(); }); }),
          .rows = in["rows"].integer(),
          .input_length = in["input_length"].integer(),
          .target_length = in["target_length"].integer(),
          .loss_tokens = in["loss_tokens"].integer(),
          .dummy = in["dummy"].boolean(),
          .cost = in["cost"].list(read_cost),
          .boundary = in["boundary"].list(read_boundary)};
}

[[nodiscard]] inline device_plan read_device(const reader& in) {
  in.allow_only({"capacity_bytes", "static_bytes", "peak_bytes", "arena_bytes", "instructions"});
  return {.capacity = in["capacity_bytes"].size_in_bytes(),
          .fixed = in["static_bytes"].size_in_bytes(),
          .peak = in["peak_bytes"].size_in_bytes(),
          .arena = read_offset(in, "arena_bytes"),
          .instructions = in["instructions"].list(read_instruction)};
}

[[nodiscard]] inline replica_plan read_replica(const reader& in) {
  in.allow_only({"predicted_ns", "micro_batches", "devices"});
  return {.predicted = in["predicted_ns"].time(),
          .micro_batches = in["micro_batches"].list(read_micro_batch),
          .devices = in["devices"].list(read_device)};
}

[[nodiscard]] inline stage_spec read_stage(const reader& in) {
  in.allow_only({"encoder", "decoder", "embedding", "head"});
  const auto encoder = read_tuple<2>(in["encoder"]);
  const auto decoder = read_tuple<2>(in["decoder"]);
  return {.encoder = {encoder[0], encoder[1]},
          .decoder = {decoder[0], decoder[1]},
          .embedding = in["embedding"].boolean(),
          .head = in["head"].boolean()};
}

[[nodiscard]] inline pipeline_plan read_pipeline(const reader& in) {
  in.allow_only({"devices", "stages", "dtype", "stage_device", "schedule", "recompute", "tensor_parallel",
                 "context_parallel", "queues"});
  pipeline_plan pipe;
  pipe.devices = in["devices"].integer();
  pipe.stages = in["stages"].list(read_stage);
  pipe.type = in["dtype"].word(dtype_names);
  pipe.stage_device = in["stage_device"].list([](const reader& device) { return device.id<device_id>(); });
  pipe.schedule = in["schedule"].text();
  pipe.recompute = std::nullopt;
  if (const reader mode = in["recompute"]; !mode.value().is_string() || mode.text() != "mixed")
    pipe.recompute = mode.word(recompute_names);
  pipe.tensor_parallel = in["tensor_parallel"].integer();
  pipe.context_parallel = in["context_parallel"].integer();
  pipe.queues = in["queues"].word(queue_style_names);
  return pipe;
}

/// What can be understood of any provenance: other programs put there what they need.
[[nodiscard]] inline plan_provenance read_provenance(const reader& in) {
  plan_provenance from;
  const auto attempt = [](auto read) {
    try {
      read();
    } catch (const error&) {
      return;
    }
  };
  if (const auto version = in.find("dynapipe"); version && version->value().is_string()) from.version = version->text();
  attempt([&] { from.model = read_model(in["model"]); });
  attempt([&] { from.cluster = read_cluster(in["cluster"]); });
  attempt([&] { from.cost_source = in["costs"]["source"].text(); });
  attempt([&] { from.cost_epoch = in["costs"]["epoch"].integer(); });
  if (const auto options = in.find("options"); options && options->value().is_object())
    for (const auto& [name, value] : options->value().items())
      from.options.emplace_back(name, value.is_string() ? value.template get<std::string>() : value.dump());
  return from;
}

}  // namespace json_detail

/// `p` as a file of format "dynapipe.plan", version 1: keys in the documented order, one instruction a line. Equal
/// plans give equal bytes on every machine. Fields that an instruction's operation does not have are left out.
///
/// Complexity: linear.
[[nodiscard]] inline std::string to_json_text(const plan& p) {
  using json_detail::put;
  using json_detail::put_list;
  std::string out = "{\"format\":\"dynapipe.plan\",\"version\":1,\n\"provenance\":";
  json_detail::put_provenance(out, p.provenance);
  out += ",\n\"lengths\":";
  put_list(out, p.lengths, "",
           [&](const sample_lengths& s) { put(out, "[", s.input, ",", s.target, ",", s.loss, "]"); });
  out += ",\n\"source_rows\":";
  put_list(out, p.source_rows);
  out += ",\n\"dropped\":";
  put_list(out, p.dropped);
  put(out, ",\n\"layout\":\"", to_string(p.layout), "\",\n\"pipeline\":");
  json_detail::put_pipeline(out, p.pipeline);
  put(out, ",\n\"predicted_ns\":", p.predicted, R"(,"sync_ns":)", p.sync, R"(,"iteration_ns":)", p.iteration,
      R"(,"lower_bound_ns":)", p.lower_bound, ",\n\"replicas\":");
  put_list(out, p.replicas, "\n", [&](const replica_plan& replica) {
    put(out, R"({"predicted_ns":)", replica.predicted, ",\n\"micro_batches\":");
    put_list(out, replica.micro_batches, "\n",
             [&](const planned_micro_batch& batch) { json_detail::put_micro_batch(out, batch); });
    out += ",\n\"devices\":";
    put_list(out, replica.devices, "\n", [&](const device_plan& device) {
      put(out, R"({"capacity_bytes":)", device.capacity, R"(,"static_bytes":)", device.fixed, R"(,"peak_bytes":)",
          device.peak, R"(,"arena_bytes":)");
      json_detail::put_bytes(out, device.arena);
      out += R"(,"instructions":)";
      put_list(out, device.instructions, "\n", [&](const instruction& i) { json_detail::put_instruction(out, i); });
      out += '}';
    });
    out += '}';
  });
  return out += "}\n";
}

/// The plan that a "dynapipe.plan" text describes; whether it holds is for `validate` to say. Keys, types and words
/// must be those of the format; only the provenance may be any object, of which what is understood is kept. `name` is
/// what errors call the text.
///
/// Guarantee: plan_from_json(to_json_text(p)) == p for every plan that validates and whose provenance is finite and
/// UTF-8, except that options come back sorted by name.
///
/// @throws error with line and column, where the text is no JSON; malformed_plan with field and value, where it is JSON
/// and no well-formed plan.
[[nodiscard]] inline plan plan_from_json(std::string_view text, const std::string& name = "plan") {
  const json_detail::json root = json_detail::parse(text, name);
  const json_detail::reader in{root, name, true};
  in.require_format("dynapipe.plan");
  in.allow_only({"format", "version", "provenance", "lengths", "source_rows", "dropped", "layout", "pipeline",
                 "predicted_ns", "sync_ns", "iteration_ns", "lower_bound_ns", "replicas"});
  plan p;
  p.provenance = json_detail::read_provenance(in["provenance"]);
  p.lengths = in["lengths"].list([](const json_detail::reader& sample) {
    const auto [input, target, loss] = json_detail::read_tuple<3>(sample);
    return sample_lengths{input, target, loss};
  });
  p.source_rows = in["source_rows"].list([](const json_detail::reader& row) { return row.integer(); });
  p.dropped = in["dropped"].list([](const json_detail::reader& sample) { return sample.id<sample_id>(); });
  p.layout = in["layout"].word(batch_layout_names);
  p.pipeline = json_detail::read_pipeline(in["pipeline"]);
  p.predicted = in["predicted_ns"].time();
  p.sync = in["sync_ns"].time();
  p.iteration = in["iteration_ns"].time();
  p.lower_bound = in["lower_bound_ns"].time();
  p.replicas = in["replicas"].list(json_detail::read_replica);
  return p;
}

/// Reads a plan's file; see `plan_from_json`.
///
/// @throws error as `plan_from_json`, or where the file cannot be read.
[[nodiscard]] inline plan load_plan(const std::filesystem::path& path) {
  return plan_from_json(read_file(path), path.string());
}

/// Writes a plan's file, whole or not at all.
///
/// @throws error naming the path, where it cannot be written.
inline void save(const plan& p, const std::filesystem::path& path) { write_file(path, to_json_text(p)); }

}  // namespace dynapipe
