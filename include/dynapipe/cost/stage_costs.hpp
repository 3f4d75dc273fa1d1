#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/shape.hpp>
#include <dynapipe/cost/split.hpp>
#include <dynapipe/cost/stage.hpp>
#include <dynapipe/cost/transfer.hpp>

namespace dynapipe {

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

/// What a cost model says of one layer and shape.
struct layer_bill {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
  std::int64_t weight = 0;
  std::int64_t stored = 0;
  std::int64_t weight_stored = 0;
  std::int64_t forward_peak = 0;
  std::int64_t backward_peak = 0;
};

template <class CostModel, class Shape>
  requires cost_model<CostModel, Shape>
[[nodiscard]] layer_bill bill_of(const CostModel& cost, layer_kind kind, const Shape& s, recompute_mode recompute) {
  return {.forward = cost.forward(kind, s, recompute).value(),
          .backward = cost.backward(kind, s, recompute).value(),
          .stored = cost.stored(kind, s, recompute).value(),
          .forward_peak = cost.forward_peak(kind, s, recompute).value(),
          .backward_peak = cost.backward_peak(kind, s, recompute).value()};
}

/// As `bill_of`, of padded rows or of concatenated samples.
template <cost_model CostModel>
[[nodiscard]] layer_bill bill_of_work(const CostModel& cost, layer_kind kind, const work_shape& work,
                                      recompute_mode recompute) {
  if (!work.varlen()) return bill_of(cost, kind, work.padded, recompute);
  if constexpr (cost_model<CostModel, varlen_shape>) {
    return bill_of(cost, kind, work.packed, recompute);
  } else {
    return {.forward = int64_limit,
            .backward = int64_limit,
            .stored = int64_limit,
            .forward_peak = int64_limit,
            .backward_peak = int64_limit};
  }
}

/// As `bill_of`, the backward in halves.
template <split_cost_model CostModel>
[[nodiscard]] layer_bill split_bill_of(const CostModel& cost, layer_kind kind, const shape& s,
                                       recompute_mode recompute) {
  layer_bill bill = bill_of(cost, kind, s, recompute);
  bill.backward = cost.backward_input(kind, s, recompute).value();
  bill.weight = cost.backward_weight(kind, s, recompute).value();
  bill.weight_stored = cost.weight_stored(kind, s, recompute).value();
  return bill;
}

/// Sums `bill(kind, shape)` over the layers of a stage.
template <class Bill>
[[nodiscard]] stage_cost sum_of_stage(const model_spec& model, const stage_spec& stage, const shape& s,
                                      recompute_mode recompute, const tensor_group& group, Bill&& bill) {
  layer_bill sum;
  std::int64_t excess = 0;
  const auto add = [&](layer_kind kind, std::int64_t count, const shape& seen) {
    if (count == 0) return;
    const layer_bill one = bill(kind, seen);
    sum.forward = saturating_add(sum.forward, saturating_mul(count, one.forward));
    sum.backward = saturating_add(sum.backward, saturating_mul(count, one.backward));
    sum.weight = saturating_add(sum.weight, saturating_mul(count, one.weight));
    sum.stored = saturating_add(sum.stored, saturating_mul(count, one.stored));
    sum.weight_stored = saturating_add(sum.weight_stored, saturating_mul(count, one.weight_stored));
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
    const std::int64_t input =
        saturating_mul(saturating_mul(s.rows, group.held(length)), model.hidden * size_of(model.type));
    sum.stored = std::max<std::int64_t>(0, sum.stored - input);
  }
  return {.forward = nanoseconds{sum.forward},
          .backward = nanoseconds{sum.backward},
          .weight = nanoseconds{sum.weight},
          .stored = bytes{sum.stored},
          .weight_stored = bytes{std::min(sum.weight_stored, sum.stored)},
          .forward_peak = bytes{saturating_add(sum.stored, excess)},
          .backward_peak = bytes{sum.backward_peak},
          .recompute = recompute};
}

/// Calls `visit(kind, shape)` for every kind of layer that some of `stages` holds, with the shape that it sees of `s`,
/// until one returns true; whether one did.
template <class Visit>
bool any_layer(const model_spec& model, const std::vector<stage_spec>& stages, const shape& s, Visit&& visit) {
  bool encoder = false;
  bool decoder = false;
  bool head = false;
  for (const stage_spec& stage : stages) {
    if (stage.embedding && visit(layer_kind::embedding, embedded_shape(model, stage, s))) return true;
    encoder = encoder || stage.encoder.count() > 0;
    decoder = decoder || stage.decoder.count() > 0;
    head = head || stage.head;
  }
  return (encoder && visit(layer_kind::encoder, s)) || (decoder && visit(model.decoder_kind(), s)) ||
         (head && visit(layer_kind::head, s));
}

}  // namespace detail

/// Cost of one micro-batch of shape `s` on a stage: sums over its layers; the forward's peak is what all its layers
/// store plus the largest excess of one layer, the backward's peak the largest of one layer. The hidden states that
/// come in are a buffer of their own and taken off `stored` once. Saturates, never throws; O(kinds of layers).
template <cost_model CostModel>
[[nodiscard]] stage_cost cost_of_stage(const model_spec& model, const stage_spec& stage, const CostModel& cost,
                                       const shape& s, recompute_mode recompute, const tensor_group& group = {}) {
  return detail::sum_of_stage(model, stage, s, recompute, group, [&](layer_kind kind, const shape& seen) {
    return detail::bill_of(cost, kind, seen, recompute);
  });
}

/// As `cost_of_stage`, for a schedule that splits the backward: `backward` is the input half, `weight` the weight half,
/// and `weight_stored` what only that one returns, never more than `stored` (the hidden states that came in stay in
/// their buffer until the weight half has run). `backward_peak`, which holds for the whole backward, is the input
/// half's. Saturates, never throws; O(kinds of layers).
template <split_cost_model CostModel>
[[nodiscard]] stage_cost split_cost_of_stage(const model_spec& model, const stage_spec& stage, const CostModel& cost,
                                             const shape& s, recompute_mode recompute, const tensor_group& group = {}) {
  return detail::sum_of_stage(model, stage, s, recompute, group, [&](layer_kind kind, const shape& seen) {
    return detail::split_bill_of(cost, kind, seen, recompute);
  });
}

/// Costs of one micro-batch on all stages, one after another into `result`; asks the cost model once for each kind of
/// layer. A model that cannot price concatenated samples refuses them with the largest value. O(stages).
template <cost_model CostModel>
void costs_of_stages(const model_spec& model, const std::vector<stage_spec>& stages, const CostModel& cost,
                     const work_shape& work, recompute_mode recompute, std::vector<stage_cost>& result,
                     const tensor_group& group = {}) {
  const shape& s = work.padded;
  std::array<std::optional<detail::layer_bill>, 5> known;
  const auto bill = [&](layer_kind kind, const shape& seen) {
    // Only an embedding sees another shape, and of that its tokens alone.
    if (seen != s) return detail::bill_of(cost, kind, seen, recompute);
    auto& entry = known[static_cast<std::size_t>(kind)];
    if (!entry) entry = detail::bill_of_work(cost, kind, work, recompute);
    return *entry;
  };
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const bool repeats = i > 1 && !stages[i].embedding && !stages[i].head && !stages[i - 1].embedding &&
                         stages[i].encoder.count() == stages[i - 1].encoder.count() &&
                         stages[i].decoder.count() == stages[i - 1].decoder.count();
    result.push_back(repeats ? result.back() : detail::sum_of_stage(model, stages[i], s, recompute, group, bill));
  }
}

/// Whether the model says that it extrapolates for some layer of `stages` at this shape. O(stages).
template <cost_model CostModel>
[[nodiscard]] bool extrapolates_somewhere(const model_spec& model, const std::vector<stage_spec>& stages,
                                          const CostModel& cost, const work_shape& work, recompute_mode recompute) {
  return detail::any_layer(model, stages, work.padded, [&](layer_kind kind, const shape& seen) {
    if constexpr (cost_model<CostModel, varlen_shape>)
      if (work.varlen() && seen == work.padded) return extrapolates(cost, kind, work.packed, recompute);
    return extrapolates(cost, kind, seen, recompute);
  });
}

/// Why the model refuses this shape on some layer of `stages`, the first reason that it gives; empty where it gives
/// none. O(stages).
template <cost_model CostModel>
[[nodiscard]] std::string first_refusal(const model_spec& model, const std::vector<stage_spec>& stages,
                                        const CostModel& cost, const work_shape& work, recompute_mode recompute) {
  std::string reason;
  detail::any_layer(model, stages, work.padded, [&](layer_kind kind, const shape& seen) {
    if (!work.varlen() || seen != work.padded) {
      reason = refusal(cost, kind, seen, recompute);
    } else if constexpr (cost_model<CostModel, varlen_shape>) {
      reason = refusal(cost, kind, work.packed, recompute);
    } else {
      reason = "its cost model prices padded rows only (use --layout padded, or fitted costs)";
    }
    return !reason.empty();
  });
  return reason;
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
