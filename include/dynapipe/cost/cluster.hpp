#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/units.hpp>

namespace dynapipe {

/// A link between two ranks: a message of b bytes takes `latency` + 8 b / `gbps` nanoseconds (gigabits per second are
/// bits per nanosecond). `ranks_per_link` ranks share one link (a network card): those that send at once divide it.
/// Beside computation, which uses the same memory and copy engines, the bytes take `overlap_slowdown` times as long.
struct link_spec {
  nanoseconds latency{0};
  double gbps = 0;
  std::int64_t ranks_per_link = 1;
  double overlap_slowdown = 1;

  friend bool operator==(const link_spec&, const link_spec&) = default;
};

/// The machines: equal devices, `devices_per_node` of them on a node.
struct cluster_spec {
  std::string name;
  std::int64_t devices_per_node = 8;
  bytes memory{0};
  bytes reserve{0};             ///< of each device's memory, for the runtime: never planned with
  double matmul_tflops = 0;     ///< peak, of the training dtype
  double memory_gbps = 0;       ///< gigabytes per second
  double efficiency = 0.55;     ///< share of the peak that dense layers reach
  nanoseconds launch_floor{0};  ///< least time of one layer and pass
  link_spec intra_node;
  link_spec inter_node;

  friend bool operator==(const cluster_spec&, const cluster_spec&) = default;
};

/// Time of one message of `size` bytes over `link` where `senders` ranks send at once and nothing computes, rounded up.
///
/// The bandwidth is read as an integer number of megabits per second, so the result is exact and equal everywhere; it
/// is held at the largest int64. Complexity O(1), never throws.
[[nodiscard]] inline nanoseconds transfer_time(const link_spec& link, bytes size, std::int64_t senders = 1) {
  const auto megabits = std::max<std::int64_t>(1, nearest(link.gbps * 1000));
  const auto sharing = std::clamp<std::int64_t>(senders, 1, std::max<std::int64_t>(1, link.ranks_per_link));
  const wide_int work = static_cast<wide_int>(size.value()) * 8000 * sharing;
  const std::int64_t time = saturate((work + megabits - 1) / megabits);
  return nanoseconds{saturating_add(link.latency.value(), time)};
}

/// Where ranks lie: rank = (replica * devices + device) * inner + k, k < inner = tensor x context parallelism, filling
/// nodes of the cluster in that order.
struct rank_grid {
  std::int64_t devices = 1;  ///< pipeline devices of one replica
  std::int64_t inner = 1;

  /// Whether some pair of corresponding ranks of two devices lies on different nodes.
  [[nodiscard]] bool crosses_nodes(const cluster_spec& cluster, std::int64_t replica, std::int64_t device_a,
                                   std::int64_t device_b) const {
    const std::int64_t a = (replica * devices + device_a) * inner;
    const std::int64_t b = (replica * devices + device_b) * inner;
    for (std::int64_t k = 0; k < inner; ++k)
      if ((a + k) / cluster.devices_per_node != (b + k) / cluster.devices_per_node) return true;
    return false;
  }
};

namespace presets {

/// DynaPipe's published setting: p4d nodes whose eight devices share one 100 Gbit/s card.
[[nodiscard]] inline cluster_spec a100_40g() {
  return {.name = "a100-40g",
          .memory = gib(40),
          .matmul_tflops = 312,
          .memory_gbps = 1555,
          .intra_node = {.gbps = 4800},
          .inter_node = {.gbps = 100, .ranks_per_link = 8}};
}

/// One 200 Gbit/s card a device; NVLink 3 in one direction; 1 GiB for the CUDA context and NCCL.
[[nodiscard]] inline cluster_spec a100_80g() {
  return {.name = "a100-80g",
          .memory = gib(80),
          .reserve = gib(1),
          .matmul_tflops = 312,
          .memory_gbps = 2039,
          .launch_floor = nanoseconds{290'000},
          .intra_node = {.latency = nanoseconds{5'000}, .gbps = 2400},
          .inter_node = {.latency = nanoseconds{15'000}, .gbps = 200}};
}

/// One 400 Gbit/s card a device; NVLink 4 in one direction.
[[nodiscard]] inline cluster_spec h100() {
  return {.name = "h100",
          .memory = gib(80),
          .reserve = gib(1),
          .matmul_tflops = 989,
          .memory_gbps = 3350,
          .launch_floor = nanoseconds{180'000},
          .intra_node = {.latency = nanoseconds{5'000}, .gbps = 3600},
          .inter_node = {.latency = nanoseconds{15'000}, .gbps = 400}};
}

/// As `h100` with 139 GiB of faster memory.
[[nodiscard]] inline cluster_spec h200() {
  cluster_spec cluster = h100();
  cluster.name = "h200";
  cluster.memory = gib(139);
  cluster.memory_gbps = 4800;
  return cluster;
}

/// All cluster presets.
[[nodiscard]] inline std::array<cluster_spec, 4> clusters() { return {a100_40g(), a100_80g(), h100(), h200()}; }

/// The cluster preset called `name`, if there is one.
[[nodiscard]] inline std::optional<cluster_spec> cluster(std::string_view name) {
  auto all = clusters();
  for (cluster_spec& preset : all)
    if (preset.name == name) return std::move(preset);
  return std::nullopt;
}

}  // namespace presets

/// Checks that `cluster` describes machines that costs can be computed for.
///
/// @throws error naming the field, where a rate or size is not positive or not a number.
inline void require_sound(const cluster_spec& cluster) {
  const auto fail = [&](const std::string& what) { throw error{"cluster '" + cluster.name + "': " + what}; };
  const auto rate = [&](double value, const char* field) {
    if (!(value >= 1e-3 && value <= 1e9))
      fail(std::string{field} + " must lie in 0.001..10^9, it is " + std::to_string(value));
  };
  const auto within = [&](std::int64_t value, std::int64_t least, std::int64_t most, const char* field) {
    require_within("cluster '" + cluster.name + "': ", field, value, least, most);
  };
  constexpr std::int64_t longest_ns = 1'000'000'000'000;
  within(cluster.devices_per_node, 1, 1'000'000, "devices_per_node");
  within(cluster.memory.value(), 1, int64_limit, "memory_bytes");
  within(cluster.reserve.value(), 0, int64_limit, "reserve_bytes");
  within(cluster.launch_floor.value(), 0, longest_ns, "launch_floor_ns");
  rate(cluster.matmul_tflops, "matmul_tflops");
  rate(cluster.memory_gbps, "memory_gbps");
  if (!(cluster.efficiency >= 1e-3 && cluster.efficiency <= 1))
    fail("efficiency must lie in 0.001..1, it is " + std::to_string(cluster.efficiency));
  const auto sound = [&](const link_spec& link, const std::string& place) {
    rate(link.gbps, (place + ".gbps").c_str());
    within(link.latency.value(), 0, longest_ns, (place + ".latency_ns").c_str());
    within(link.ranks_per_link, 1, 1'000'000, (place + ".ranks_per_link").c_str());
    if (!(link.overlap_slowdown >= 1 && link.overlap_slowdown <= 1000))
      fail(place + ".overlap_slowdown must lie in 1..1000, it is " + std::to_string(link.overlap_slowdown));
  };
  sound(cluster.intra_node, "intra_node");
  sound(cluster.inter_node, "inter_node");
}

}  // namespace dynapipe
