#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <dynapipe/core.hpp>
#include <dynapipe/schedule/problem.hpp>

namespace dynapipe::test {

/// Random numbers of a seed; equal everywhere.
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : engine_{seed} {}

  /// From `low` to `high`, both possible.
  std::int64_t from(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return from(1, n) == 1; }

 private:
  std::mt19937_64 engine_;
};

struct problem_sizes {
  std::int64_t stages = 8;
  std::int64_t micro_batches = 20;
};

/// A pipeline of random stages, placement (a device a stage, in turn, or there and back), costs, links, queues and
/// memory: from hardly enough, or just short of it, to plenty.
inline pipeline_problem random_problem(random_source& random, problem_sizes most = {}) {
  pipeline_problem p;
  const auto stages = static_cast<std::size_t>(random.from(1, most.stages));
  p.micro_batches = static_cast<std::size_t>(random.from(1, most.micro_batches));
  const std::int64_t placement = random.from(0, 2);
  p.devices = placement == 0 ? stages : static_cast<std::size_t>(random.from(1, static_cast<std::int64_t>(stages)));
  for (std::size_t s = 0; s < stages; ++s) {
    const std::size_t turn = s % p.devices;
    const bool back = placement == 2 && (s / p.devices) % 2 == 1;
    p.stage_device.push_back(to_id<device_id>(back ? p.devices - 1 - turn : turn));
  }
  p.queues = static_cast<queue_style>(random.from(0, 2));

  const std::int64_t time = random.one_in(4) ? 3 : 100;
  const std::int64_t link = random.one_in(2) ? 0 : random.from(0, 50);
  const std::int64_t message = random.one_in(3) ? 1 : random.from(1, 50);
  for (std::size_t m = 0; m < p.micro_batches; ++m)
    for (std::size_t s = 0; s < stages; ++s) {
      const std::int64_t size = random.from(1, 10);
      const std::int64_t stored = random.from(0, 20) * size;
      p.cost.push_back({.forward = nanoseconds{random.from(0, time) * size},
                        .backward = nanoseconds{random.from(0, 2 * time) * size},
                        .stored = bytes{stored},
                        .forward_peak = bytes{stored + random.from(0, 20) * size},
                        .backward_peak = bytes{random.from(0, 40) * size}});
      const bool reads = s == 0 || s + 1 == stages || random.one_in(10);
      p.loads.emplace_back(reads ? random.from(1, 10) : 0);
      if (s + 1 == stages) continue;
      const bool joined = p.joined(s);
      const auto takes = [&] { return nanoseconds{joined ? 0 : random.from(0, link)}; };
      const bytes forward{random.from(1, message)};
      const nanoseconds forward_time = takes();
      p.hops.push_back({forward, forward_time, bytes{random.from(1, message)}, takes()});
    }

  std::vector<bytes> least(p.devices, bytes{0});
  for (std::size_t m = 0; m < p.micro_batches; ++m) {
    const std::vector<bytes> alone = memory_alone(p, m);
    for (std::size_t d = 0; d < p.devices; ++d)
      least[d] = std::max(least[d], alone[d]);
  }
  const std::int64_t plenty = random.from(0, 5);
  for (const bytes need : least) {
    bytes capacity = need * random.from(1, 20);
    if (plenty == 0) capacity = need;
    if (plenty == 1) capacity = need + bytes{random.from(0, 20)};
    if (plenty == 2) capacity = need * 2;
    if (plenty == 3) capacity = need - bytes{random.one_in(6) ? 1 : 0};
    p.capacity.push_back(capacity);
  }
  return p;
}

}  // namespace dynapipe::test
