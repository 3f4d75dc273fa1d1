#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <dynapipe/batch/sample.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe::detail {

/// The slowest micro-batch of a cut, and the sum of all.
struct cut_times {
  std::int64_t t_max = 0;
  std::int64_t sum = 0;
};

/// The least sums of all suffixes of the samples, and the count of samples that the first micro-batch of each takes.
template <class Lazy = void>
struct suffix_sums {
  std::vector<std::int64_t> least;
  std::vector<std::uint32_t> taken;

  explicit suffix_sums(std::size_t samples) : least(samples + 1, 0), taken(samples, 0) {}

  [[nodiscard]] std::vector<std::size_t> cuts() const {
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < taken.size(); i += taken[i])
      result.push_back(i);
    return result;
  }
};

/// Samples `begin` .. `end` - 1 of one padded shape.
struct sample_run {
  std::size_t begin = 0;
  std::size_t end = 0;
  shape alone;
};

template <class Lazy = void>
[[nodiscard]] std::vector<sample_run> runs_of(std::span<const shape> alone) {
  std::vector<sample_run> runs;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    if (i == 0 || alone[i] != alone[i - 1]) runs.push_back({i, i, alone[i]});
    runs.back().end = i + 1;
  }
  return runs;
}

/// The padded shape of each sample as a micro-batch of its own.
template <class Lazy = void>
[[nodiscard]] std::vector<shape> padded_alone(std::span<const sample_lengths> ordered, const shape_options& shapes) {
  std::vector<shape> alone;
  alone.reserve(ordered.size());
  for (const sample_lengths& s : ordered)
    alone.push_back({1, padded_length(s.input, shapes), s.target > 0 ? padded_length(s.target, shapes) : 0});
  return alone;
}

/// Whether samples have one length each, longest first.
template <class Lazy = void>
[[nodiscard]] bool is_sorted_by_length(std::span<const shape> alone) {
  return std::all_of(alone.begin(), alone.end(), [](const shape& s) { return s.target == 0; }) &&
         std::is_sorted(alone.begin(), alone.end(), [](const shape& a, const shape& b) { return a.input > b.input; });
}

}  // namespace dynapipe::detail
