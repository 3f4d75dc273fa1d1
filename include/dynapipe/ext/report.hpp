#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/plan/plan.hpp>

/// What people want to read of a plan: numbers, and its timeline in text. Needs fmt.

namespace dynapipe {

/// The figures of a plan. Tokens are those that the model reads; padded tokens those that it computes.
struct plan_summary {
  std::int64_t micro_batches = 0;  ///< over all replicas, dummies included
  std::int64_t samples = 0;
  std::int64_t real_tokens = 0;
  std::int64_t padded_tokens = 0;
  std::int64_t loss_tokens = 0;
  nanoseconds predicted{0};
  nanoseconds sync{0};
  nanoseconds lower_bound{0};
  std::vector<bytes> peak{};      ///< by pipeline device, the largest of all replicas
  std::vector<bytes> capacity{};  ///< by pipeline device
  double bubble = 0;              ///< share of the devices' time, until the last replica ends, without a computation

  [[nodiscard]] double padding_efficiency() const {
    return padded_tokens > 0 ? static_cast<double>(real_tokens) / static_cast<double>(padded_tokens) : 1;
  }
  /// How far above the lower bound the plan is: at most that far from the optimum.
  [[nodiscard]] double gap() const {
    return lower_bound > nanoseconds{0}
               ? static_cast<double>(predicted.value()) / static_cast<double>(lower_bound.value()) - 1
               : 0;
  }
};

/// The figures of `p`. O(instructions), never throws for a plan that `validate` accepts.
[[nodiscard]] inline plan_summary summarize(const plan& p) {
  plan_summary result{.samples = static_cast<std::int64_t>(p.lengths.size() - p.dropped.size()),
                      .predicted = p.predicted,
                      .sync = p.sync,
                      .lower_bound = p.lower_bound};
  for (const sample_lengths& s : p.lengths)
    result.real_tokens += s.input + s.target;
  for (const sample_id id : p.dropped)
    result.real_tokens -= p.lengths[index(id)].input + p.lengths[index(id)].target;
  double busy = 0;
  std::int64_t devices = 0;
  for (const replica_plan& replica : p.replicas) {
    for (const planned_micro_batch& mb : replica.micro_batches) {
      ++result.micro_batches;
      result.padded_tokens += mb.rows * (mb.input_length + mb.target_length);
      result.loss_tokens += mb.loss_tokens;
    }
    result.peak.resize(std::max(result.peak.size(), replica.devices.size()));
    result.capacity.resize(result.peak.size());
    for (std::size_t d = 0; d < replica.devices.size(); ++d) {
      const device_plan& device = replica.devices[d];
      result.peak[d] = std::max(result.peak[d], device.peak);
      result.capacity[d] = std::max(result.capacity[d], device.capacity);
      ++devices;
      for (const instruction& i : device.instructions)
        if (computes(i.op)) busy += static_cast<double>((i.end - i.start).value());
    }
  }
  const double whole = static_cast<double>(p.predicted.value()) * static_cast<double>(devices);
  result.bubble = whole > 0 ? 1 - busy / whole : 0;
  return result;
}

namespace detail {

[[nodiscard]] inline std::string in_gib(bytes amount) {
  return fmt::format("{:.2f}", static_cast<double>(amount.value()) / static_cast<double>(gib(1).value()));
}
[[nodiscard]] inline std::string in_ms(nanoseconds time) {
  return fmt::format("{:.3f} ms", static_cast<double>(time.value()) / 1e6);
}

}  // namespace detail

/// A plan's figures for people, a line each. `planning` is how long it took to make.
[[nodiscard]] inline std::string summary_text(const plan_summary& s, nanoseconds planning) {
  std::string out;
  const auto line = [&](const char* name, const std::string& value) {
    fmt::format_to(std::back_inserter(out), "{:<16} {}\n", name, value);
  };
  line("samples", fmt::format("{} in {} micro-batches", s.samples, s.micro_batches));
  line("tokens", fmt::format("{} real, {} padded: padding efficiency {:.1f} %", s.real_tokens, s.padded_tokens,
                             100 * s.padding_efficiency()));
  line("predicted",
       fmt::format("{} (+ {} of gradient synchronisation)", detail::in_ms(s.predicted), detail::in_ms(s.sync)));
  line("lower bound", fmt::format("{}: at most {:.1f} % from optimal for these micro-batches",
                                  detail::in_ms(s.lower_bound), 100 * s.gap()));
  line("bubble", fmt::format("{:.1f} % of the devices' time", 100 * s.bubble));
  std::string memory;
  for (std::size_t d = 0; d < s.peak.size(); ++d)
    fmt::format_to(std::back_inserter(memory), "{}{} of {}", d == 0 ? "" : ", ", detail::in_gib(s.peak[d]),
                   detail::in_gib(s.capacity[d]));
  line("peak memory", memory + " GiB");
  line("planning time", detail::in_ms(planning));
  return out;
}

/// The timeline of one replica in text: a line for each device, a column for each slice of time. A slice shows what
/// fills most of it: a forward as the lower-case letter of its micro-batch (a, b, ... z, a, ...), a backward as the
/// upper-case one, idle time as a dot. `columns` is the number of slices. O(instructions + devices x columns).
[[nodiscard]] inline std::string timeline_text(const plan& p, replica_id replica, std::size_t columns = 100) {
  const replica_plan& from = p.replicas[index(replica)];
  const std::int64_t whole = std::max<std::int64_t>(1, p.predicted.value());
  const double slice = static_cast<double>(whole) / static_cast<double>(columns);
  std::string out;
  for (std::size_t d = 0; d < from.devices.size(); ++d) {
    std::string cells(columns, '.');
    std::vector<double> share(columns, 0);
    std::vector<double> idle(columns, 1);
    for (const instruction& i : from.devices[d].instructions) {
      if (!computes(i.op)) continue;
      const char letter = static_cast<char>((i.op == opcode::forward ? 'a' : 'A') + static_cast<int>(index(i.mb) % 26));
      const double start = static_cast<double>(i.start.value()) / slice;
      const double end = static_cast<double>(i.end.value()) / slice;
      for (auto c = static_cast<std::size_t>(start); c < columns && static_cast<double>(c) < end; ++c) {
        const double covered = std::min(end, static_cast<double>(c + 1)) - std::max(start, static_cast<double>(c));
        idle[c] -= covered;
        if (covered <= share[c]) continue;
        share[c] = covered;
        cells[c] = letter;
      }
    }
    for (std::size_t c = 0; c < columns; ++c)
      if (idle[c] > share[c]) cells[c] = '.';
    fmt::format_to(std::back_inserter(out), "device {:>2} |{}|\n", d, cells);
  }
  fmt::format_to(std::back_inserter(out), "{:>10}{:<{}}{}\n", "0 ", "", columns > 8 ? columns - 8 : 0,
                 detail::in_ms(p.predicted));
  return out;
}

}  // namespace dynapipe
