#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/shape.hpp>
#include <dynapipe/cost/stage.hpp>

namespace dynapipe {

/// The ranks that share each layer of a device. Under sequence parallelism (Korthikanti et al., arXiv 2205.05198,
/// section 4.2.2) each holds its part of the hidden states' tokens between two layers, otherwise all hold the whole.
struct tensor_group {
  std::int64_t ranks = 1;
  bool sequence = false;

  /// Tokens of `length` that one rank holds between two layers: the longest part, where it does not come out even.
  [[nodiscard]] constexpr std::int64_t held(std::int64_t length) const {
    return sequence && ranks > 1 ? ceil_div(length, ranks) : length;
  }

  friend constexpr bool operator==(const tensor_group&, const tensor_group&) = default;
};

/// The tensors that ONE rank sends of a micro-batch of shape `s` from `stage` to the stage after it, as (rows, length,
/// hidden): the hidden states; after a decoder layer of an encoder-decoder model the encoder's output before them.
/// Under sequence parallelism the lengths are those that a rank holds.
template <class Lazy = void>
[[nodiscard]] std::vector<std::array<std::int64_t, 3>> boundary_tensors(const model_spec& model,
                                                                        const stage_spec& stage, const shape& s,
                                                                        const tensor_group& group = {}) {
  std::vector<std::array<std::int64_t, 3>> result{{s.rows, group.held(s.input), model.hidden}};
  if (model.encoder_decoder() && stage.decoder.count() > 0)
    result.push_back({s.rows, group.held(s.target), model.hidden});
  return result;
}

/// Bytes of the tensors of `boundary_tensors`: of the buffer that one rank sends and another holds. Saturates; O(1).
[[nodiscard]] inline bytes boundary_bytes(const model_spec& model, const stage_spec& stage, const shape& s,
                                          const tensor_group& group = {}) {
  const bool both = model.encoder_decoder() && stage.decoder.count() > 0;
  const std::int64_t length = saturating_add(group.held(s.input), both ? group.held(s.target) : 0);
  return bytes{saturating_mul(saturating_mul(s.rows, length), model.hidden * size_of(model.type))};
}

/// Time of a boundary of `size` bytes a rank: all ranks of the group send theirs at once, as many as share a link
/// divide it, and the bandwidth falls by the link's `overlap_slowdown`, since pipelines send beside computation.
///
/// latency + 8 size sharing slowdown / gbps, rounded up and held at the largest int64; the slowdown is read as an
/// integer number of thousandths, so that the result is equal everywhere. O(1), never throws.
[[nodiscard]] inline nanoseconds boundary_time(const link_spec& link, bytes size, const tensor_group& group = {}) {
  const std::int64_t thousandths = std::max<std::int64_t>(1000, nearest(link.overlap_slowdown * 1000));
  if (thousandths == 1000) return transfer_time(link, size, group.ranks);
  const auto megabits = std::max<std::int64_t>(1, nearest(link.gbps * 1000));
  const auto sharing = std::clamp<std::int64_t>(group.ranks, 1, std::max<std::int64_t>(1, link.ranks_per_link));
  const wide_int work = static_cast<wide_int>(size.value()) * 8 * sharing * thousandths;
  return nanoseconds{saturating_add(link.latency.value(), saturate((work + megabits - 1) / megabits))};
}

}  // namespace dynapipe
