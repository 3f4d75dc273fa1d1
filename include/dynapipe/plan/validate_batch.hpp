#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/plan/plan.hpp>
#include <dynapipe/plan/violation.hpp>

namespace dynapipe::validation {

template <class Enum, std::size_t N>
[[nodiscard]] constexpr bool known(const name_table<Enum, N>& names, Enum value) {
  for (const auto& [key, name] : names)
    if (key == value) return true;
  return false;
}

/// Judges how the model is cut: every later check may use `stage_device` and `devices` if this returns true.
///
/// Layers count from 0 and follow one another without gap over the stages, an encoder's before a decoder's.
template <class Lazy = void>
bool check_pipeline(const plan& p, findings& found) {
  const pipeline_plan& pipe = p.pipeline;
  const std::size_t before = found.count();
  if (pipe.devices < 1 || pipe.devices > (std::int64_t{1} << 31) - 1)
    found.add("pipeline.devices", "a pipeline has 1 .. 2^31 - 1 devices, not ", pipe.devices);
  if (pipe.stage_device.empty()) found.add("pipeline.stage_device", "there is no stage");
  for (std::size_t s = 0; s < pipe.stage_device.size() && !found.full(); ++s)
    if (static_cast<std::int64_t>(pipe.stage_device[s]) < 0 ||
        static_cast<std::int64_t>(pipe.stage_device[s]) >= pipe.devices)
      found.add(text("pipeline.stage_device[", s, "]"), "there is no device ", pipe.stage_device[s]);
  if (!known(queue_style_names, pipe.queues)) found.add("pipeline.queues", "unknown style ", pipe.queues);
  const bool usable = found.count() == before;

  if (pipe.stages.size() != pipe.stage_device.size())
    found.add("pipeline.stages", "describes ", pipe.stages.size(), " stages, stage_device places ",
              pipe.stage_device.size());
  std::int64_t encoder_end = 0;
  std::int64_t decoder_end = 0;
  for (std::size_t s = 0; s < pipe.stages.size() && !found.full(); ++s) {
    const auto follow = [&](const layer_range& layers, std::int64_t& end, const char* part) {
      if (layers.from < 0 || layers.to < layers.from)
        found.add(text("pipeline.stages[", s, "].", part), "[", layers.from, ", ", layers.to,
                  ") is no range of layers");
      else if (layers.from < layers.to && layers.from != end)
        found.add(text("pipeline.stages[", s, "].", part), "begins at layer ", layers.from,
                  ", the stages before it end at ", end);
      if (layers.to > layers.from) end = layers.to;
    };
    if (decoder_end > 0 && pipe.stages[s].encoder.to > pipe.stages[s].encoder.from)
      found.add(text("pipeline.stages[", s, "].encoder"), "stands behind layers of the decoder");
    follow(pipe.stages[s].encoder, encoder_end, "encoder");
    follow(pipe.stages[s].decoder, decoder_end, "decoder");
  }
  if (pipe.tensor_parallel < 1) found.add("pipeline.tensor_parallel", "must be at least 1, is ", pipe.tensor_parallel);
  if (pipe.context_parallel < 1)
    found.add("pipeline.context_parallel", "must be at least 1, is ", pipe.context_parallel);
  if (!known(dtype_names, pipe.type)) found.add("pipeline.dtype", "unknown type ", pipe.type);
  if (pipe.recompute && !known(recompute_names, *pipe.recompute))
    found.add("pipeline.recompute", "unknown mode ", *pipe.recompute);
  return usable;
}

/// Judges the costs that micro-batch `batch` states for every stage and boundary, and the lengths of those lists: the
/// program of its replica may be judged only if they are right, and this returns whether they are.
template <class Lazy = void>
bool check_costs(const plan& p, const planned_micro_batch& batch, const std::string& where, findings& found) {
  const std::size_t stages = p.pipeline.stage_device.size();
  const bool sized = batch.cost.size() == stages && batch.boundary.size() + 1 == stages;
  if (batch.cost.size() != stages)
    found.add(where + ".cost", "has ", batch.cost.size(), " entries for ", stages, " stages");
  if (batch.boundary.size() + 1 != stages)
    found.add(where + ".boundary", "has ", batch.boundary.size(), " entries for ", stages, " stages");

  for (std::size_t s = 0; s < batch.cost.size() && !found.full(); ++s) {
    const stage_cost& c = batch.cost[s];
    const auto here = [&] { return text(where, ".cost[", s, "]"); };
    const std::pair<std::int64_t, const char*> amounts[] = {{c.forward.value(), "forward_ns"},
                                                            {c.backward.value(), "backward_ns"},
                                                            {c.weight.value(), "weight_ns"},
                                                            {c.stored.value(), "stored_bytes"},
                                                            {c.weight_stored.value(), "weight_stored_bytes"},
                                                            {c.forward_peak.value(), "forward_peak_bytes"},
                                                            {c.backward_peak.value(), "backward_peak_bytes"}};
    for (const auto& [amount, name] : amounts)
      if (amount < 0) found.add(here(), name, " is negative: ", amount);
    if (c.forward_peak < c.stored)
      found.add(here(), "forward_peak_bytes ", c.forward_peak, " includes stored_bytes ", c.stored,
                " and lies below it");
    if (c.weight_stored > c.stored)
      found.add(here(), "weight_stored_bytes ", c.weight_stored, " is a part of stored_bytes ", c.stored,
                " and lies above it");
    if (!known(recompute_names, c.recompute))
      found.add(here(), "unknown recompute mode ", c.recompute);
    else if (p.pipeline.recompute && c.recompute != *p.pipeline.recompute)
      found.add(here(), "recompute is ", to_string(c.recompute), ", the pipeline's is ",
                to_string(*p.pipeline.recompute));
  }

  for (std::size_t s = 0; s < batch.boundary.size() && !found.full(); ++s) {
    const boundary_cost& b = batch.boundary[s];
    const auto here = [&] { return text(where, ".boundary[", s, "]"); };
    if (b.forward_bytes.value() <= 0 || b.backward_bytes.value() <= 0)
      found.add(here(), "carries ", b.forward_bytes, " bytes forward and ", b.backward_bytes,
                " backward, both must be above 0");
    if (b.forward.value() < 0 || b.backward.value() < 0)
      found.add(here(), "takes negative time: ", b.forward, " ns forward, ", b.backward, " ns backward");
    for (const auto& tensor : b.tensors)
      if (tensor[0] < 0 || tensor[1] < 0 || tensor[2] < 0)
        found.add(here(), "has a tensor of negative size: ", tensor[0], " x ", tensor[1], " x ", tensor[2]);
    if (sized && p.pipeline.stage_device[s] == p.pipeline.stage_device[s + 1] &&
        (b.forward.value() != 0 || b.backward.value() != 0))
      found.add(here(), "lies inside device ", p.pipeline.stage_device[s], " and takes time");
  }
  return sized;
}

/// Judges rows, shape and loss of `batch`, and counts its samples in `planned` (by sample id).
template <class Lazy = void>
void check_rows(const plan& p, const planned_micro_batch& batch, const std::string& where,
                std::vector<std::int64_t>& planned, findings& found) {
  if (batch.rows < 1 || batch.input_length < 0 || batch.target_length < 0)
    found.add(where, "has the shape ", batch.rows, " x ", batch.input_length, " + ", batch.target_length);
  if (batch.dummy) {
    if (!batch.samples.empty() || batch.loss_tokens != 0)
      found.add(where, "is a dummy with ", batch.samples.size(), " rows of samples and ", batch.loss_tokens,
                " loss tokens");
    if (batch.rows > 1) found.add(where, "is a dummy of ", batch.rows, " rows, one is enough");
    return;
  }
  if (batch.samples.empty()) found.add(where, "has no sample and is no dummy");
  if (batch.rows != static_cast<std::int64_t>(batch.samples.size()))
    found.add(where, "states ", batch.rows, " rows and lists ", batch.samples.size());
  if (p.layout == batch_layout::varlen && batch.rows != 1)
    found.add(where, "has ", batch.rows, " rows, varlen has one");

  wide_int loss = 0;
  for (std::size_t r = 0; r < batch.samples.size(); ++r) {
    const auto here = [&] { return text(where, ".samples[", r, "]"); };
    if (batch.samples[r].empty()) found.add(here(), "is an empty row");
    wide_int input = 0;
    wide_int target = 0;
    for (const sample_id id : batch.samples[r]) {
      if (index(id) >= p.lengths.size()) {
        found.add(here(), "there is no sample ", id);
        continue;
      }
      ++planned[index(id)];
      input += p.lengths[index(id)].input;
      target += p.lengths[index(id)].target;
      loss += p.lengths[index(id)].loss;
    }
    if (input > batch.input_length)
      found.add(here(), "holds ", input, " input tokens, input_length is ", batch.input_length);
    if (target > batch.target_length)
      found.add(here(), "holds ", target, " target tokens, target_length is ", batch.target_length);
  }
  if (loss != batch.loss_tokens)
    found.add(where + ".loss_tokens", "is ", batch.loss_tokens, ", its samples have ", loss);
}

/// Judges samples and micro-batches: every sample is planned or dropped exactly once, rows fit their shapes, loss
/// tokens add up, costs are sane. Returns for each replica whether its lists have the lengths that the pipeline says.
///
/// Complexity: linear in samples plus micro-batches times stages.
template <class Lazy = void>
[[nodiscard]] std::vector<bool> check_batch(const plan& p, findings& found) {
  if (!known(batch_layout_names, p.layout)) found.add("layout", "unknown layout ", p.layout);
  if (p.source_rows.size() != p.lengths.size())
    found.add("source_rows", "has ", p.source_rows.size(), " entries for ", p.lengths.size(), " samples");
  for (std::size_t i = 0; i < p.source_rows.size() && !found.full(); ++i)
    if (p.source_rows[i] < 0) found.add(text("source_rows[", i, "]"), "is negative: ", p.source_rows[i]);
  for (std::size_t i = 0; i < p.lengths.size() && !found.full(); ++i) {
    const sample_lengths& sample = p.lengths[i];
    if (sample.input < 0 || sample.target < 0 || sample.loss < 0 || (sample.input == 0 && sample.target == 0))
      found.add(text("lengths[", i, "]"), "no sample has ", sample.input, " input, ", sample.target, " target and ",
                sample.loss, " loss tokens");
  }

  std::vector<std::int64_t> planned(p.lengths.size(), 0);
  for (const sample_id id : p.dropped) {
    if (index(id) < planned.size())
      ++planned[index(id)];
    else
      found.add("dropped", "there is no sample ", id);
  }

  if (p.replicas.empty()) found.add("replicas", "there is none");
  bool any_loss = false;
  std::vector<bool> sized(p.replicas.size(), false);
  for (std::size_t r = 0; r < p.replicas.size() && !found.full(); ++r) {
    const std::vector<planned_micro_batch>& batches = p.replicas[r].micro_batches;
    if (batches.empty()) found.add(text("replicas[", r, "].micro_batches"), "there is none");
    bool right = true;
    for (std::size_t m = 0; m < batches.size() && !found.full(); ++m) {
      const std::string where = text("replicas[", r, "].micro_batches[", m, "]");
      check_rows(p, batches[m], where, planned, found);
      right = check_costs(p, batches[m], where, found) && right;
      any_loss = any_loss || batches[m].loss_tokens != 0;
    }
    if (static_cast<std::int64_t>(p.replicas[r].devices.size()) != p.pipeline.devices) {
      found.add(text("replicas[", r, "].devices"), "lists ", p.replicas[r].devices.size(),
                " devices, the pipeline has ", p.pipeline.devices);
      right = false;
    }
    sized[r] = right && !found.full();
  }
  if (found.full()) return sized;
  if (!any_loss) found.add("replicas", "no micro-batch has a loss token");
  for (std::size_t i = 0; i < planned.size() && !found.full(); ++i)
    if (planned[i] != 1) found.add(text("lengths[", i, "]"), "the sample is planned ", planned[i], " times, not once");
  return sized;
}

}  // namespace dynapipe::validation
