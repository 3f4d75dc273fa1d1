#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/parameters.hpp>
#include <dynapipe/cost/shape.hpp>
#include <dynapipe/cost/stage.hpp>

namespace dynapipe {

/// Cuts a model's layers (encoder first) into `stages` runs of equal length; where that does not come out even, the
/// middle stages take one layer more, since the first also embeds and the last also holds the head. The first stage
/// embeds, and so does an encoder-decoder's first stage with decoder layers (it reads the decoder's tokens).
///
/// @throws error where there are more stages than layers, or none. O(stages).
template <class Lazy = void>
[[nodiscard]] std::vector<stage_spec> split_layers(const model_spec& model, std::int64_t stages) {
  if (stages < 1 || stages > model.layers())
    throw error{"model '" + model.name + "' has " + std::to_string(model.layers()) + " layers: it cannot be cut into " +
                std::to_string(stages) + " pipeline stages (lower --pp or --stages-per-device)"};
  const std::int64_t base = model.layers() / stages;
  const std::int64_t rest = model.layers() % stages;
  const std::int64_t first_longer = (stages - rest + 1) / 2;
  std::vector<stage_spec> result;
  std::int64_t next = 0;
  bool decoder_seen = false;
  for (std::int64_t s = 0; s < stages; ++s) {
    const std::int64_t end = next + base + (s >= first_longer && s < first_longer + rest ? 1 : 0);
    const auto encoder = [&](std::int64_t layer) { return std::min(layer, model.encoder_layers); };
    const auto decoder = [&](std::int64_t layer) { return std::max<std::int64_t>(layer - model.encoder_layers, 0); };
    stage_spec stage{.encoder = {encoder(next), encoder(end)}, .decoder = {decoder(next), decoder(end)}};
    const bool first_decoder = !decoder_seen && stage.decoder.count() > 0;
    decoder_seen = decoder_seen || first_decoder;
    stage.embedding = s == 0 || (model.encoder_decoder() && first_decoder);
    stage.head = s + 1 == stages;
    result.push_back(stage);
    next = end;
  }
  return result;
}

namespace detail {

inline bool starts_decoder(const model_spec& model, const stage_spec& stage) {
  return model.encoder_decoder() && stage.decoder.count() > 0 && stage.decoder.from == 0;
}

/// The shape that a stage's embedding reads: the decoder's tokens on the first decoder stage unless the encoder starts
/// there too.
inline shape embedded_shape(const model_spec& model, const stage_spec& stage, const shape& s) {
  if (!starts_decoder(model, stage)) return s;
  const bool both = stage.encoder.count() > 0 && stage.encoder.from == 0;
  return {s.rows, both ? saturating_add(s.input, s.target) : s.target, 0};
}

}  // namespace detail

namespace detail {

/// What a cost model says of one layer and shape.
struct layer_bill {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::int64_t stored = 0;
  std::int64_t forward_peak = 0;
  std::int64_t backward_peak = 0;
};

template <cost_model CostModel>
[[nodiscard]] layer_bill bill_of(const CostModel& cost, layer_kind kind, const shape& s, recompute_mode recompute) {
  return {cost.forward(kind, s, recompute).value(), cost.backward(kind, s, recompute).value(),
          cost.stored(kind, s, recompute).value(), cost.forward_peak(kind, s, recompute).value(),
          cost.backward_peak(kind, s, recompute).value()};
}

/// Sums `bill(kind, shape)` over the layers of a stage.
template <class Bill>
[[nodiscard]] stage_cost sum_of_stage(const model_spec& model, const stage_spec& stage, const shape& s,
                                      recompute_mode recompute, Bill&& bill) {
  layer_bill sum;
  std::int64_t excess = 0;
  const auto add = [&](layer_kind kind, std::int64_t count, const shape& seen) {
    if (count == 0) return;
    const layer_bill one = bill(kind, seen);
    sum.forward = saturating_add(sum.forward, saturating_mul(count, one.forward));
    sum.backward = saturating_add(sum.backward, saturating_mul(count, one.backward));
    sum.stored = saturating_add(sum.stored, saturating_mul(count, one.stored));
    sum.backward_peak = std::max(sum.backward_peak, one.backward_peak);
    excess = std::max(excess, one.forward_peak - one.stored);
  };
  if (stage.embedding) add(layer_kind::embedding, 1, embedded_shape(model, stage, s));
  add(layer_kind::encoder, stage.encoder.count(), s);
  add(model.decoder_kind(), stage.decoder.count(), s);
  if (stage.head) add(layer_kind::head, 1, s);
  const bool fed = stage.encoder.count() > 0 ? stage.encoder.from > 0 : stage.decoder.from > 0;
  if (fed && sum.stored < int64_limit) {
    const std::int64_t length = stage.encoder.count() == 0 && model.encoder_decoder() ? s.target : s.input;
    const std::int64_t input = saturating_mul(saturating_mul(s.rows, length), model.hidden * size_of(model.type));
    sum.stored = std::max<std::int64_t>(0, sum.stored - input);
  }
  return {.forward = nanoseconds{sum.forward},
          .backward = nanoseconds{sum.backward},
          .stored = bytes{sum.stored},
          .forward_peak = bytes{saturating_add(sum.stored, excess)},
          .backward_peak = bytes{sum.backward_peak},
          .recompute = recompute};
}

}  // namespace detail

/// Cost of one micro-batch of shape `s` on a stage: sums over its layers; the forward's peak is what all its layers
/// store plus the largest excess of one layer, the backward's peak the largest of one layer. The hidden states that
/// come in from the stage before are a buffer of their own and taken off `stored` once. Saturates, never throws;
/// O(kinds of layers).
template <cost_model CostModel>
[[nodiscard]] stage_cost cost_of_stage(const model_spec& model, const stage_spec& stage, const CostModel& cost,
                                       const shape& s, recompute_mode recompute) {
  return detail::sum_of_stage(model, stage, s, recompute, [&](layer_kind kind, const shape& seen) {
    return detail::bill_of(cost, kind, seen, recompute);
  });
}

/// Costs of one micro-batch of shape `s` on all stages, one after another into `result`; asks the cost model once for
/// each kind of layer. O(stages).
template <cost_model CostModel>
void costs_of_stages(const model_spec& model, const std::vector<stage_spec>& stages, const CostModel& cost,
                     const shape& s, recompute_mode recompute, std::vector<stage_cost>& result) {
  std::array<std::optional<detail::layer_bill>, 5> known;
  const auto bill = [&](layer_kind kind, const shape& seen) {
    if (seen != s) return detail::bill_of(cost, kind, seen, recompute);
    auto& entry = known[static_cast<std::size_t>(kind)];
    if (!entry) entry = detail::bill_of(cost, kind, seen, recompute);
    return *entry;
  };
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const bool repeats = i > 1 && !stages[i].embedding && !stages[i].head && !stages[i - 1].embedding &&
                         stages[i].encoder.count() == stages[i - 1].encoder.count() &&
                         stages[i].decoder.count() == stages[i - 1].decoder.count();
    result.push_back(repeats ? result.back() : detail::sum_of_stage(model, stages[i], s, recompute, bill));
  }
}

/// The tensors that a micro-batch of shape `s` carries from `stage` to the stage after it, as (rows, length, hidden):
/// the hidden states; after a decoder layer of an encoder-decoder model the encoder's output before them.
template <class Lazy = void>
[[nodiscard]] std::vector<std::array<std::int64_t, 3>> boundary_tensors(const model_spec& model,
                                                                        const stage_spec& stage, const shape& s) {
  if (!model.encoder_decoder()) return {{s.rows, s.input, model.hidden}};
  if (stage.decoder.count() == 0) return {{s.rows, s.input, model.hidden}};
  return {{s.rows, s.input, model.hidden}, {s.rows, s.target, model.hidden}};
}

/// Bytes of the boundary tensors, saturating.
[[nodiscard]] inline bytes boundary_bytes(const model_spec& model, const stage_spec& stage, const shape& s) {
  std::int64_t elements = 0;
  for (const auto& [rows, length, hidden] : boundary_tensors(model, stage, s))
    elements = saturating_add(elements, saturating_mul(saturating_mul(rows, length), hidden));
  return bytes{saturating_mul(elements, size_of(model.type))};
}

/// Bytes of one token or label in a loaded buffer.
inline constexpr std::int64_t token_bytes = 4;

/// Bytes that a stage loads of a micro-batch: its tokens where it embeds, its labels where it holds the head.
[[nodiscard]] inline bytes load_bytes(const model_spec& model, const stage_spec& stage, const shape& s) {
  std::int64_t length = 0;
  if (stage.embedding) length = detail::embedded_shape(model, stage, s).input;
  if (stage.head) length = saturating_add(length, model.encoder_decoder() ? s.target : s.input);
  return bytes{saturating_mul(saturating_mul(s.rows, length), token_bytes)};
}

/// Bytes of weights, gradients and optimizer states of the stages of one device. One embedding matrix serves all of
/// them, and a tied head; a tied head apart from every embedding keeps a copy.
template <cost_model CostModel>
[[nodiscard]] bytes state_of_device(const model_spec& model, const std::vector<stage_spec>& stages,
                                    const std::vector<device_id>& stage_device, device_id device,
                                    const CostModel& cost) {
  std::int64_t sum = 0;
  bool embeds = false;
  bool heads = false;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (stage_device[s] != device) continue;
    embeds = embeds || stages[s].embedding;
    heads = heads || stages[s].head;
    const std::int64_t encoder = saturating_mul(stages[s].encoder.count(), cost.state(layer_kind::encoder).value());
    const std::int64_t decoder = saturating_mul(stages[s].decoder.count(), cost.state(model.decoder_kind()).value());
    sum = saturating_add(sum, saturating_add(encoder, decoder));
  }
  if (embeds) sum = saturating_add(sum, cost.state(layer_kind::embedding).value());
  if (heads && !(model.tied_head && embeds)) sum = saturating_add(sum, cost.state(layer_kind::head).value());
  return bytes{sum};
}

}  // namespace dynapipe
