#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <dynapipe/schedule/problem.hpp>

namespace dynapipe::test {

/// What happens to one micro-batch, one event after another: passes and transfers. An event needs `needs` bytes of
/// `device` on top of what is held there, and changes what is held afterwards.
struct chain_event {
  std::size_t device;
  std::int64_t needs;
  std::int64_t then;            ///< change of what `device` holds
  std::size_t released_on = 0;  ///< a transfer's source, which gives its buffer back
  std::int64_t released = 0;
};

inline std::vector<chain_event> chain_of(const pipeline_problem& p, std::size_t m) {
  std::vector<chain_event> chain;
  const std::size_t last = p.stages() - 1;
  for (std::size_t s = 0; s <= last; ++s) {
    const stage_cost& cost = p.cost_of(m, s);
    const std::int64_t out = s < last ? p.hop(m, s).forward_bytes.value() : 0;
    const std::int64_t load = p.load_of(m, s).value();
    chain.push_back({p.device_of(s), load + out + cost.forward_peak.value(), load + out + cost.stored.value()});
    if (s < last && !p.joined(s)) chain.push_back({p.device_of(s + 1), out, out, p.device_of(s), out});
  }
  for (std::size_t s = last + 1; s-- > 0;) {
    const stage_cost& cost = p.cost_of(m, s);
    const std::int64_t out = s > 0 ? p.hop(m, s - 1).backward_bytes.value() : 0;
    const std::int64_t inputs = p.load_of(m, s).value() + (s > 0 ? p.hop(m, s - 1).forward_bytes.value() : 0) +
                                (s < last ? p.hop(m, s).backward_bytes.value() : 0);
    chain.push_back({p.device_of(s), out + cost.backward_peak.value(), out - cost.stored.value() - inputs});
    if (s > 0 && !p.joined(s - 1)) chain.push_back({p.device_of(s - 1), out, out, p.device_of(s), out});
  }
  return chain;
}

/// Whether any interleaving of the micro-batches' chains keeps within every device: a search over all their states.
inline bool some_order_fits(const pipeline_problem& p) {
  std::vector<std::vector<chain_event>> chains;
  std::size_t states = 1;
  for (std::size_t m = 0; m < p.micro_batches; ++m) {
    chains.push_back(chain_of(p, m));
    states *= chains.back().size() + 1;
  }
  std::vector<char> seen(states, 0);
  std::vector<std::vector<std::size_t>> open{std::vector<std::size_t>(p.micro_batches, 0)};
  while (!open.empty()) {
    const std::vector<std::size_t> at = open.back();
    open.pop_back();
    std::size_t code = 0;
    bool finished = true;
    std::vector<std::int64_t> held(p.devices, 0);
    for (std::size_t m = 0; m < at.size(); ++m) {
      code = code * (chains[m].size() + 1) + at[m];
      finished = finished && at[m] == chains[m].size();
      for (std::size_t k = 0; k < at[m]; ++k) {
        held[chains[m][k].device] += chains[m][k].then;
        held[chains[m][k].released_on] -= chains[m][k].released;
      }
    }
    if (finished) return true;
    if (seen[code]++ != 0) continue;
    for (std::size_t m = 0; m < at.size(); ++m) {
      if (at[m] == chains[m].size()) continue;
      const chain_event& next = chains[m][at[m]];
      if (held[next.device] + next.needs > p.capacity[next.device].value()) continue;
      open.push_back(at);
      ++open.back()[m];
    }
  }
  return false;
}

}  // namespace dynapipe::test
