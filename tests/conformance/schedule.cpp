#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <dynapipe/comm.hpp>
#include <dynapipe/core.hpp>
#include <dynapipe/schedule.hpp>

#include "kinds.hpp"

namespace conformance {

namespace {

using nlohmann::json;

/// A case's numbers as integers: as they are, or in millionths where some are fractions.
class scaled_numbers {
 public:
  explicit scaled_numbers(const json& test_case) {
    for (const char* key : {"forward", "backward", "stored"})
      for (const json& row : test_case.at(key))
        look(row);
    look(test_case.at("latency"));
    if (!test_case.at("capacity").is_null()) look(test_case["capacity"]);
  }

  [[nodiscard]] std::int64_t read(const json& number) const {
    const double value = number.get<double>();
    if (!(value >= 0 && value <= 1e12)) throw dynapipe::error{"a number out of range: " + number.dump()};
    return scale_ == 1 ? number.get<std::int64_t>() : std::llround(value * static_cast<double>(scale_));
  }
  [[nodiscard]] json write(std::int64_t value) const {
    return scale_ == 1 ? json(value) : json(static_cast<double>(value) / static_cast<double>(scale_));
  }
  [[nodiscard]] std::string text(std::int64_t value) const { return write(value).dump(); }

 private:
  void look(const json& part) {
    if (part.is_array())
      for (const json& entry : part)
        look(entry);
    else if (!part.is_number_integer())
      scale_ = 1'000'000;
  }

  std::int64_t scale_ = 1;
};

dynapipe::pipeline_problem problem_of(const json& test_case, const scaled_numbers& numbers) {
  const auto stages = test_case.at("stages").get<std::size_t>();
  const auto micro_batches = test_case.at("micro_batches").get<std::size_t>();
  if (stages < 1 || micro_batches < 1 || stages > 100'000 || micro_batches > 1'000'000)
    throw dynapipe::error{"stages and micro_batches must be at least 1"};
  if (!test_case.at("weight").is_null()) throw dynapipe::error{"weight: split backwards are not scheduled yet"};
  const auto cell = [&](const char* key, std::size_t s, std::size_t m) {
    return numbers.read(test_case.at(key).at(s).at(m));
  };
  dynapipe::pipeline_problem problem{.devices = stages,
                                     .micro_batches = micro_batches,
                                     .stage_device = {},
                                     .cost = {},
                                     .hops = {},
                                     .loads = {},
                                     .capacity = {},
                                     .queues = std::nullopt};
  const json& capacity = test_case.at("capacity");
  const dynapipe::nanoseconds latency{numbers.read(test_case.at("latency"))};
  for (std::size_t s = 0; s < stages; ++s) {
    problem.stage_device.push_back(dynapipe::to_id<dynapipe::device_id>(s));
    problem.capacity.emplace_back(capacity.is_null() ? dynapipe::int64_limit / 4 : numbers.read(capacity.at(s)));
  }
  for (std::size_t m = 0; m < micro_batches; ++m)
    for (std::size_t s = 0; s < stages; ++s) {
      const dynapipe::bytes stored{cell("stored", s, m)};
      problem.cost.push_back({.forward = dynapipe::nanoseconds{cell("forward", s, m)},
                              .backward = dynapipe::nanoseconds{cell("backward", s, m)},
                              .stored = stored,
                              .forward_peak = stored});
      problem.loads.emplace_back(0);
      if (s + 1 < stages) problem.hops.push_back({dynapipe::bytes{0}, latency, dynapipe::bytes{0}, latency});
    }
  return problem;
}

/// Injection orders to try: as given, and by total time longest first, shortest first, and rising then falling.
std::vector<std::vector<dynapipe::micro_batch_id>> injections(const dynapipe::pipeline_problem& problem) {
  std::vector<std::int64_t> total(problem.micro_batches, 0);
  std::vector<dynapipe::micro_batch_id> order;
  for (std::size_t m = 0; m < problem.micro_batches; ++m) {
    order.push_back(dynapipe::to_id<dynapipe::micro_batch_id>(m));
    for (std::size_t s = 0; s < problem.stages(); ++s)
      total[m] += problem.cost_of(m, s).forward.value() + problem.cost_of(m, s).backward.value();
  }
  std::vector<std::vector<dynapipe::micro_batch_id>> result{order};
  std::sort(order.begin(), order.end(), [&](auto a, auto b) {
    const std::int64_t x = total[dynapipe::index(a)];
    const std::int64_t y = total[dynapipe::index(b)];
    return x != y ? x < y : a < b;
  });
  result.push_back(order);
  result.emplace_back(order.rbegin(), order.rend());
  std::vector<dynapipe::micro_batch_id> ramp;
  for (std::size_t i = 0; i < order.size(); i += 2)
    ramp.push_back(order[i]);
  for (std::size_t i = order.size() - order.size() % 2; i > 0; i -= 2)
    ramp.push_back(order[i - 1]);
  result.push_back(std::move(ramp));
  return result;
}

json answer_of(const dynapipe::pipeline_problem& problem, const dynapipe::program& lists,
               const dynapipe::timeline& times, const scaled_numbers& numbers) {
  const dynapipe::operation_index number{problem};
  json orders = json::array();
  json peaks = json::array();
  for (const auto& list : lists) {
    std::string order;
    std::int64_t held = 0;
    std::int64_t peak = 0;
    for (const dynapipe::program_step& step : list) {
      if (!step.computes()) continue;
      const bool forward = step.what == dynapipe::program_step::action::forward;
      const std::int64_t stored = problem.cost_of(dynapipe::index(step.mb), dynapipe::index(step.stage)).stored.value();
      held += forward ? stored : -stored;
      peak = std::max(peak, held);
      order += (order.empty() ? "" : " ") + std::string{forward ? "F" : "B"} +
               std::to_string(dynapipe::index(step.mb)) + "@" +
               numbers.text(times.spans[number.of(step)].start.value());
    }
    orders.push_back(std::move(order));
    peaks.push_back(numbers.write(peak));
  }
  const dynapipe::nanoseconds bound = dynapipe::lower_bound(problem);
  return {{"makespan", numbers.write(times.makespan.value())},
          {"lower_bound", numbers.write(bound.value())},
          {"peak", std::move(peaks)},
          {"order", std::move(orders)},
          {"proven", times.makespan == bound}};
}

}  // namespace

json schedule(const json& test_case, const options&) {
  const auto begin = std::chrono::steady_clock::now();
  const scaled_numbers numbers{test_case};
  const dynapipe::pipeline_problem problem = problem_of(test_case, numbers);
  std::optional<dynapipe::program> best;
  dynapipe::timeline times;
  const auto consider = [&](dynapipe::program lists) {
    std::optional<dynapipe::timeline> next = dynapipe::simulate(problem, lists);
    if (!next || (best && next->makespan >= times.makespan)) return;
    best = std::move(lists);
    times = std::move(*next);
  };
  for (const auto& injection : injections(problem))
    consider(dynapipe::adaptive(problem, injection));
  try {
    consider(dynapipe::order_transfers(problem, dynapipe::one_f_one_b(problem)));
  } catch (const dynapipe::infeasible&) {
    // 1F1B has no say in memory; the adaptive schedules stand.
  }
  json result = answer_of(problem, *best, times, numbers);
  result["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace conformance
