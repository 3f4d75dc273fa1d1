#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <dynapipe/batch/pack.hpp>
#include <dynapipe/batch/pack_groups.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/error.hpp>

#include "kinds.hpp"

namespace conformance {

namespace {

using nlohmann::json;

/// A field that may be left out: nothing then, or where it is null.
const json* optional_field(const json& of, const char* key) {
  const auto found = of.find(key);
  return found == of.end() || found->is_null() ? nullptr : &*found;
}

const json& required(const json& of, const char* key) {
  const json* found = optional_field(of, key);
  if (found == nullptr) throw dynapipe::error{std::string{key} + " is missing"};
  return *found;
}

std::int64_t integer(const json& value, const std::string& name, std::int64_t least, std::int64_t most) {
  const bool too_large = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX;
  if (!value.is_number_integer() || too_large) throw dynapipe::error{name + " is no integer: " + value.dump()};
  dynapipe::require_within("", name, value.get<std::int64_t>(), least, most);
  return value.get<std::int64_t>();
}

double amount(const json& cost, const char* key) {
  const json* value = optional_field(cost, key);
  if (value == nullptr) return 0;
  if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() < 0)
    throw dynapipe::error{std::string{"cost: "} + key + " must be a number of at least 0, it is " + value->dump()};
  return value->get<double>();
}

/// A micro-batch takes a + b * tokens + c * sum of squares: as integers, in a unit so small that all of them together
/// have 60 bits.
struct scaled_cost {
  double a = 0;
  double b = 1;
  double c = 0;
  double scale = 1;

  explicit scaled_cost(const json* cost) {
    if (cost == nullptr) return;
    if (!cost->is_object()) throw dynapipe::error{"cost is no object: " + cost->dump()};
    a = amount(*cost, "a");
    b = amount(*cost, "b");
    c = amount(*cost, "c");
  }

  [[nodiscard]] double work(std::int64_t length) const {
    const double tokens = static_cast<double>(length);
    return b * tokens + c * tokens * tokens;
  }

  void choose_scale(const std::vector<std::int64_t>& lengths, std::int64_t batches) {
    double all = a * static_cast<double>(batches);
    for (const std::int64_t length : lengths)
      all += work(length);
    if (!std::isfinite(all)) throw dynapipe::error{"cost: the times of all samples add up to more than a double holds"};
    if (all > 0) scale = std::ldexp(1.0, 60 - std::ilogb(all) - 1);
    if (!std::isfinite(scale)) throw dynapipe::error{"cost: the times are too small"};
  }

  [[nodiscard]] std::int64_t scaled(double value) const { return std::llround(value * scale); }
};

/// The group of each sample, from one id a sample or from lists of samples; without groups each is on its own.
std::vector<std::int64_t> read_groups(const json* groups, std::size_t samples) {
  std::vector<std::int64_t> group_of(samples, -1);
  std::int64_t next = 0;
  if (groups != nullptr && !groups->is_array()) throw dynapipe::error{"groups is no list: " + groups->dump()};
  if (groups != nullptr && !groups->empty() && !groups->front().is_array()) {
    if (groups->size() != samples)
      throw dynapipe::error{"groups has " + std::to_string(groups->size()) + " ids for " + std::to_string(samples) +
                            " samples"};
    std::map<json, std::int64_t> known;
    for (std::size_t i = 0; i < samples; ++i) {
      const json& id = groups->at(i);
      if (!id.is_number_integer() && !id.is_string())
        throw dynapipe::error{"groups[" + std::to_string(i) + "] is no id: " + id.dump()};
      group_of[i] = known.emplace(id, static_cast<std::int64_t>(known.size())).first->second;
    }
    return group_of;
  }
  for (std::size_t g = 0; groups != nullptr && g < groups->size(); ++g, ++next) {
    const std::string name = "groups[" + std::to_string(g) + "]";
    if (!groups->at(g).is_array()) throw dynapipe::error{name + " is no list: " + groups->at(g).dump()};
    for (const json& id : groups->at(g)) {
      const std::int64_t sample = integer(id, name + ": a sample", 0, static_cast<std::int64_t>(samples) - 1);
      std::int64_t& group = group_of[static_cast<std::size_t>(sample)];
      if (group >= 0) throw dynapipe::error{name + ": sample " + std::to_string(sample) + " is in a group already"};
      group = next;
    }
  }
  for (std::int64_t& group : group_of)
    if (group < 0) group = next++;
  return group_of;
}

std::vector<std::int64_t> read_lengths(const json& list, std::int64_t align, std::int64_t cap) {
  if (!list.is_array()) throw dynapipe::error{"lengths is no list: " + list.dump()};
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < list.size(); ++i)
    lengths.push_back(integer(list[i], "lengths[" + std::to_string(i) + "]", 0, dynapipe::longest_length));
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t length = std::exchange(lengths[i], dynapipe::round_up(lengths[i], align));
    if (lengths[i] > cap)
      throw dynapipe::unsatisfiable{"sample " + std::to_string(i) + " has " + std::to_string(length) + " tokens, " +
                                        std::to_string(lengths[i]) + " aligned to a multiple of " +
                                        std::to_string(align) + ", above the cap of " + std::to_string(cap) +
                                        ": raise the cap, or drop, truncate or split the sample",
                                    dynapipe::batch_constraint::cap};
  }
  return lengths;
}

}  // namespace

json pack(const json& test_case, const options&) {
  if (!test_case.is_object()) throw dynapipe::error{"the case is no object"};
  const auto integer_or = [&](const char* key, std::int64_t most) {
    const json* value = optional_field(test_case, key);
    return value == nullptr ? 1 : integer(*value, key, 1, most);
  };
  dynapipe::pack_options asked;
  asked.ranks = integer(required(test_case, "ranks"), "ranks", 1, 1 << 24);
  asked.cap = integer(required(test_case, "cap"), "cap", 1, std::int64_t{1} << 62);
  asked.count_multiple = integer_or("multiple_of", 1 << 24);
  if (const json* equal = optional_field(test_case, "equal_count")) {
    if (!equal->is_boolean()) throw dynapipe::error{"equal_count is neither true nor false: " + equal->dump()};
    asked.equal_counts = equal->get<bool>();
  }
  scaled_cost cost{optional_field(test_case, "cost")};
  const json& listed = required(test_case, "lengths");
  const std::vector<std::int64_t> group_of = read_groups(optional_field(test_case, "groups"), listed.size());
  const std::vector<std::int64_t> lengths =
      read_lengths(listed, integer_or("align", dynapipe::longest_length), asked.cap);
  cost.choose_scale(lengths, static_cast<std::int64_t>(lengths.size()) + asked.ranks * (asked.count_multiple + 1));
  asked.fixed = cost.scaled(cost.a);
  std::vector<dynapipe::pack_item> samples;
  for (const std::int64_t length : lengths)
    samples.push_back({length, cost.scaled(cost.work(length))});

  const auto start = std::chrono::steady_clock::now();
  const dynapipe::pack_result result = dynapipe::pack_groups(std::span<const dynapipe::pack_item>{samples},
                                                             std::span<const std::int64_t>{group_of}, asked);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;

  json ranks = json::array();
  for (std::size_t r = 0; r < result.ranks(); ++r) {
    ranks.push_back(json::array());
    for (std::size_t m = 0; m < result.micro_batches(r); ++m)
      ranks.back().push_back(std::vector<std::size_t>(result.of(r, m).begin(), result.of(r, m).end()));
  }
  // Rounded down, past what a double and the scale leave off.
  constexpr double down = 1 - 0x1p-50;
  return {{"ranks", std::move(ranks)},
          {"max_over_mean", result.max_over_mean()},
          {"lower_bound", static_cast<double>(result.scaled_bound) / cost.scale * down},
          {"seconds", taken.count()}};
}

}  // namespace conformance
