#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/cluster.hpp>

using namespace dynapipe;

namespace {

std::string complaint(const cluster_spec& cluster) {
  try {
    require_sound(cluster);
  } catch (const error& e) {
    return e.what();
  }
  return "none";
}

cluster_spec nodes_of(std::int64_t devices) {
  cluster_spec cluster;
  cluster.devices_per_node = devices;
  return cluster;
}

std::int64_t sent(const link_spec& link, std::int64_t size, std::int64_t senders = 1) {
  return transfer_time(link, bytes{size}, senders).value();
}

}  // namespace

TEST_CASE("a transfer's time by hand") {
  // 100 Gbit/s is 12.5 bytes a nanosecond.
  const link_spec link{.latency = nanoseconds{7}, .gbps = 100};
  CHECK(sent(link, 0) == 7);
  CHECK(sent(link, 25) == 7 + 2);
  CHECK(sent(link, 26) == 7 + 3);
  CHECK(sent(link, 1) == 7 + 1);
  CHECK(sent(link, 1'250'000) == 7 + 100'000);
  CHECK(sent({.gbps = 0.001}, 1) == 8'000);
  CHECK(sent({.gbps = 2.5}, 10) == 32);
  CHECK(sent({.gbps = 3}, 1) == 3);
}

TEST_CASE("senders share a link, but only as many as it has") {
  link_spec link{.latency = nanoseconds{5}, .gbps = 8};  // a byte a nanosecond
  CHECK(sent(link, 1'000, 4) == 1'005);
  link.ranks_per_link = 8;
  CHECK(sent(link, 1'000, 1) == 1'005);
  CHECK(sent(link, 1'000, 3) == 3'005);
  CHECK(sent(link, 1'000, 8) == 8'005);
  CHECK(sent(link, 1'000, 9) == 8'005);
  CHECK(sent(link, 1'000, 0) == 1'005);
  CHECK(sent(link, 1'000, -1) == 1'005);
}

TEST_CASE("a transfer beyond measure is held at the largest time") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(sent({.latency = nanoseconds{1}, .gbps = 0.001, .ranks_per_link = 1'000}, most, 1'000) == most);
  CHECK(sent({.latency = nanoseconds{most}, .gbps = 100}, 1) == most);
  CHECK(sent({.gbps = 8}, most) == most);
  CHECK(sent({.gbps = 16}, most) == most / 2 + 1);
}

TEST_CASE("a transfer's time neither falls with the bytes nor is short of the bandwidth") {
  constexpr unsigned seed = 11;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 5'000; ++round) {
    const auto megabits = static_cast<std::int64_t>(random() % 5'000'000 + 1);
    const link_spec link{.latency = nanoseconds{static_cast<std::int64_t>(random() % 1'000)},
                         .gbps = static_cast<double>(megabits) / 1'000,
                         .ranks_per_link = static_cast<std::int64_t>(random() % 8 + 1)};
    const auto size = static_cast<std::int64_t>(random() % (std::uint64_t{1} << (random() % 50 + 1)));
    const auto senders = static_cast<std::int64_t>(random() % 8 + 1);
    const std::int64_t sharing = std::min(senders, link.ranks_per_link);
    const std::int64_t time = sent(link, size, senders) - link.latency.value();
    // The least integer t with t * megabits >= 8000 * size * sharing.
    const wide_int work = static_cast<wide_int>(size) * 8'000 * sharing;
    CHECK(static_cast<wide_int>(time) * megabits >= work);
    CHECK(static_cast<wide_int>(time - 1) * megabits < work);
    CHECK(sent(link, size + 1, senders) >= sent(link, size, senders));
  }
}

TEST_CASE("which devices lie on different nodes, by hand") {
  const cluster_spec cluster = nodes_of(8);
  const rank_grid grid{.devices = 4, .inner = 2};  // one replica is one node
  for (std::int64_t replica = 0; replica < 3; ++replica)
    for (std::int64_t d = 0; d < 3; ++d)
      CHECK_FALSE(grid.crosses_nodes(cluster, replica, d, d + 1));

  const rank_grid wide{.devices = 4, .inner = 4};  // devices 0, 1 | 2, 3
  CHECK_FALSE(wide.crosses_nodes(cluster, 0, 0, 1));
  CHECK(wide.crosses_nodes(cluster, 0, 1, 2));
  CHECK_FALSE(wide.crosses_nodes(cluster, 0, 2, 3));
  CHECK(wide.crosses_nodes(cluster, 0, 0, 3));

  // Replicas of 3: ranks 0 1 2 | 3 4 5 | 6 7 (node's end) 8, so only the third replica is cut, and between its last
  // two.
  const rank_grid odd{.devices = 3, .inner = 1};
  CHECK_FALSE(odd.crosses_nodes(cluster, 0, 0, 2));
  CHECK_FALSE(odd.crosses_nodes(cluster, 1, 0, 2));
  CHECK_FALSE(odd.crosses_nodes(cluster, 2, 0, 1));
  CHECK(odd.crosses_nodes(cluster, 2, 1, 2));

  // Groups of 3 over nodes of 8: device 2 is ranks 6 7 | 8, so of its pairs with device 1 only (5, 8) crosses.
  const rank_grid split{.devices = 4, .inner = 3};
  CHECK_FALSE(split.crosses_nodes(cluster, 0, 0, 1));
  CHECK(split.crosses_nodes(cluster, 0, 1, 2));
  CHECK(split.crosses_nodes(cluster, 0, 2, 3));
  CHECK_FALSE(split.crosses_nodes(nodes_of(1'000), 0, 2, 3));
  CHECK(split.crosses_nodes(nodes_of(1), 0, 0, 1));
}

TEST_CASE("cluster presets are sound and found by their names") {
  for (const cluster_spec& preset : presets::clusters()) {
    CAPTURE(preset.name);
    CHECK(complaint(preset) == "none");
    REQUIRE(presets::cluster(preset.name).has_value());
    CHECK(*presets::cluster(preset.name) == preset);
    CHECK(preset.devices_per_node == 8);
  }
  for (const char* name : {"a100-40g", "a100-80g", "h100", "h200"})
    CHECK_MESSAGE(presets::cluster(name).has_value(), name);
  CHECK_FALSE(presets::cluster("A100-40g").has_value());
  CHECK(presets::a100_40g().memory == bytes{42'949'672'960});
  CHECK(presets::h200().memory > presets::h100().memory);
}

TEST_CASE("an unsound cluster is refused by field and value") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinite = std::numeric_limits<double>::infinity();
  using change = std::function<void(cluster_spec&)>;
  const std::vector<std::pair<change, const char*>> cases{
      {[](cluster_spec& c) { c.devices_per_node = 0; }, "devices_per_node must lie in 1..1000000, it is 0"},
      {[](cluster_spec& c) { c.memory = bytes{0}; }, "memory_bytes must lie in 1..9223372036854775807, it is 0"},
      {[](cluster_spec& c) { c.reserve = bytes{-1}; }, "reserve_bytes must lie in 0..9223372036854775807, it is -1"},
      {[](cluster_spec& c) { c.launch_floor = nanoseconds{-3}; },
       "launch_floor_ns must lie in 0..1000000000000, it is -3"},
      {[](cluster_spec& c) { c.launch_floor = nanoseconds{1'000'000'000'001}; }, "launch_floor_ns must lie in 0.."},
      {[](cluster_spec& c) { c.matmul_tflops = 0; }, "matmul_tflops must lie in 0.001..10^9"},
      {[=](cluster_spec& c) { c.matmul_tflops = nan; }, "matmul_tflops must lie in 0.001..10^9"},
      {[=](cluster_spec& c) { c.memory_gbps = infinite; }, "memory_gbps must lie in 0.001..10^9"},
      {[](cluster_spec& c) { c.memory_gbps = -1; }, "memory_gbps must lie in 0.001..10^9"},
      {[](cluster_spec& c) { c.efficiency = 1.5; }, "efficiency must lie in 0.001..1"},
      {[=](cluster_spec& c) { c.efficiency = nan; }, "efficiency must lie in 0.001..1"},
      {[](cluster_spec& c) { c.intra_node.gbps = 0; }, "intra_node.gbps must lie in 0.001..10^9"},
      {[=](cluster_spec& c) { c.inter_node.gbps = nan; }, "inter_node.gbps must lie in 0.001..10^9"},
      {[](cluster_spec& c) { c.inter_node.latency = nanoseconds{-1}; },
       "inter_node.latency_ns must lie in 0..1000000000000, it is -1"},
      {[](cluster_spec& c) { c.intra_node.ranks_per_link = 0; },
       "intra_node.ranks_per_link must lie in 1..1000000, it is 0"},
      {[](cluster_spec& c) { c.inter_node.overlap_slowdown = 0.9; },
       "inter_node.overlap_slowdown must lie in 1..1000, it is 0.9"},
      {[=](cluster_spec& c) { c.intra_node.overlap_slowdown = nan; },
       "intra_node.overlap_slowdown must lie in 1..1000"}};
  for (const auto& [apply, text] : cases) {
    cluster_spec cluster = presets::h100();
    apply(cluster);
    CAPTURE(text);
    CHECK(complaint(cluster).find("cluster 'h100': ") == 0);
    CHECK(complaint(cluster).find(text) != std::string::npos);
  }
}
