#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <dynapipe/batch/spread_problem.hpp>

namespace dynapipe::detail {

/// A spread in lock-step: `steps[m][r]` is the item that replica r runs at step m.
struct spread_steps {
  std::vector<std::vector<std::uint32_t>> steps;

  [[nodiscard]] std::int64_t sum(const spread_problem& p) const {
    std::int64_t all = 0;
    for (const std::vector<std::uint32_t>& step : steps)
      all += p.items[*std::min_element(step.begin(), step.end())].time;
    return all;
  }
  [[nodiscard]] std::vector<std::int64_t> samples(const spread_problem& p) const {
    std::vector<std::int64_t> all(p.replicas(), 0);
    for (const std::vector<std::uint32_t>& step : steps)
      for (std::size_t r = 0; r < step.size(); ++r)
        all[r] += p.items[step[r]].samples;
    return all;
  }
};

/// Deals items in runs of as many as there are replicas, which makes the sum of the steps' longest as small as it can
/// be: m steps hold no more than m R items, so that the m-th longest of them is at least the item at m R. Within a run
/// the item with most samples goes to the replica that has fewest, or the longest to the one with least time.
/// O(n log R).
template <class Lazy = void>
spread_steps deal_in_runs(const spread_problem& p) {
  const std::size_t replicas = p.replicas();
  spread_steps dealt;
  std::vector<std::int64_t> load(replicas, 0);
  std::vector<std::uint32_t> order(replicas), run(replicas);
  const auto weight = [&](std::uint32_t i) { return p.options.equal_samples ? p.items[i].samples : p.items[i].time; };
  for (std::size_t begin = 0; begin < p.items.size(); begin += replicas) {
    for (std::size_t r = 0; r < replicas; ++r) {
      order[r] = static_cast<std::uint32_t>(r);
      run[r] = static_cast<std::uint32_t>(begin + r);
    }
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t a, std::uint32_t b) { return load[a] != load[b] ? load[a] < load[b] : a < b; });
    std::sort(run.begin(), run.end(),
              [&](std::uint32_t a, std::uint32_t b) { return weight(a) != weight(b) ? weight(a) > weight(b) : a < b; });
    std::vector<std::uint32_t>& step = dealt.steps.emplace_back(replicas);
    for (std::size_t r = 0; r < replicas; ++r) {
      step[order[r]] = run[r];
      load[order[r]] += weight(run[r]);
    }
  }
  return dealt;
}

/// Evens the replicas' samples out by swaps, within steps as far as that helps, then between steps, where it costs
/// least. True when all have what they should. O(R M) a swap, O(R M^2) between steps.
template <class Lazy = void>
bool even_step_samples(const spread_problem& p, spread_steps& dealt) {
  auto& steps = dealt.steps;
  std::vector<std::int64_t> samples = dealt.samples(p);
  const std::size_t replicas = samples.size();
  struct swap_of {
    std::size_t a = 0, b = 0, m = 0, k = 0;
    std::int64_t gain = 0;
    std::int64_t cost = 0;
  };
  const auto off = [&](std::size_t r) { return p.samples_off(samples[r]); };
  const auto find = [&](bool between) {
    swap_of best;
    for (std::size_t a = 0; a < replicas; ++a) {
      if (off(a) == 0) continue;
      for (std::size_t b = 0; b < replicas; ++b)
        for (std::size_t m = 0; m < steps.size() && a != b; ++m)
          for (std::size_t k = between ? 0 : m; k < (between ? steps.size() : m + 1); ++k) {
            std::uint32_t& give = steps[m][a];
            std::uint32_t& take = steps[k][b];
            const std::int64_t moved = p.items[give].samples - p.items[take].samples;
            const std::int64_t gain =
                off(a) + off(b) - p.samples_off(samples[a] - moved) - p.samples_off(samples[b] + moved);
            if (gain <= 0 || gain < best.gain) continue;
            std::int64_t cost = 0;
            if (between) {
              const auto longest = [&](std::size_t at) {
                return p.items[*std::min_element(steps[at].begin(), steps[at].end())].time;
              };
              cost = -longest(m) - longest(k);
              std::swap(give, take);
              cost += longest(m) + longest(k);
              std::swap(give, take);
            }
            if (gain > best.gain || cost < best.cost) best = {a, b, m, k, gain, cost};
          }
    }
    return best;
  };
  for (;;) {
    bool all = true;
    for (std::size_t r = 0; r < replicas; ++r)
      all = all && off(r) == 0;
    if (all) return true;
    swap_of best = find(false);
    if (best.gain == 0) best = find(true);
    if (best.gain == 0) return false;
    const std::int64_t moved = p.items[steps[best.m][best.a]].samples - p.items[steps[best.k][best.b]].samples;
    std::swap(steps[best.m][best.a], steps[best.k][best.b]);
    samples[best.a] -= moved;
    samples[best.b] += moved;
  }
}

}  // namespace dynapipe::detail
