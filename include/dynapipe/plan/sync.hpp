#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/parameters.hpp>
#include <dynapipe/plan/pipeline_costs.hpp>

namespace dynapipe {

namespace detail {

/// Bytes of gradients of one rank of a device.
template <class Costs>
[[nodiscard]] bytes gradient_bytes(const Costs& costs, std::size_t device) {
  const model_spec& model = costs.model();
  std::int64_t count = 0;
  bool embeds = false;
  bool heads = false;
  for (std::size_t s = 0; s < costs.stages().size(); ++s) {
    if (index(costs.stage_device()[s]) != device) continue;
    const stage_spec& stage = costs.stages()[s];
    count += stage.encoder.count() * parameters(model, layer_kind::encoder) +
             stage.decoder.count() * parameters(model, model.decoder_kind());
    embeds = embeds || stage.embedding;
    heads = heads || stage.head;
  }
  if (embeds) count += parameters(model, layer_kind::embedding);
  if (heads && !(model.tied_head && embeds)) count += parameters(model, layer_kind::head);
  return bytes{ceil_div(saturating_mul(count, size_of(model.type)), costs.options().tensor)};
}

/// Ring all-reduce of `size` bytes over `ranks` ranks: 2 (ranks - 1) messages of size / ranks.
[[nodiscard]] inline nanoseconds ring_all_reduce(const link_spec& link, bytes size, std::int64_t ranks,
                                                 std::int64_t senders) {
  if (ranks < 2) return nanoseconds{0};
  const nanoseconds step = transfer_time(link, bytes{ceil_div(size.value(), ranks)}, senders);
  return nanoseconds{saturating_mul(2 * (ranks - 1), step.value())};
}

}  // namespace detail

/// The time by which gradient synchronisation outlasts the pipelines.
///
/// A device's gradients are summed over the replicas by a ring all-reduce that starts when the last of its stages is
/// ready in the slowest replica, over the inter-node link where the replicas' ranks lie on different nodes, whose cards
/// all ranks of a node then share. A tied head apart from its embedding adds an exchange of that matrix between their
/// devices. `ready[d]` are the ends of the last backwards of device d, over stages and replicas. O(devices + replicas).
template <class Costs>
[[nodiscard]] nanoseconds sync_overhang(const Costs& costs, const std::vector<std::vector<nanoseconds>>& ready,
                                        nanoseconds predicted) {
  const cluster_spec& cluster = costs.cluster();
  const std::int64_t replicas = costs.options().data;
  const std::int64_t ranks_of_replica = costs.options().pipeline * costs.options().tensor;
  const bool one_node = replicas * ranks_of_replica <= cluster.devices_per_node;
  const link_spec& link = one_node ? cluster.intra_node : cluster.inter_node;
  std::vector<std::int64_t> end(ready.size(), 0);
  std::int64_t last = 0;
  for (std::size_t d = 0; d < ready.size(); ++d) {
    for (const nanoseconds t : ready[d])
      end[d] = std::max(end[d], t.value());
    const nanoseconds time =
        detail::ring_all_reduce(link, detail::gradient_bytes(costs, d), replicas, cluster.devices_per_node);
    end[d] = saturating_add(end[d], time.value());
    last = std::max(last, end[d]);
  }
  const std::size_t first_device = index(costs.stage_device().front());
  const std::size_t last_device = index(costs.stage_device().back());
  if (costs.model().tied_head && first_device != last_device) {
    const std::int64_t matrix = parameters(costs.model(), layer_kind::embedding) * size_of(costs.model().type);
    const bool inside = ranks_of_replica <= cluster.devices_per_node;
    const nanoseconds time =
        detail::ring_all_reduce(inside ? cluster.intra_node : cluster.inter_node,
                                bytes{ceil_div(matrix, costs.options().tensor)}, 2, costs.options().tensor);
    last = std::max(last, saturating_add(std::max(end[first_device], end[last_device]), time.value()));
  }
  return nanoseconds{std::max<std::int64_t>(0, last - predicted.value())};
}

}  // namespace dynapipe
