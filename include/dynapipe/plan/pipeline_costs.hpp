#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/batch/sample.hpp>
#include <dynapipe/batch/shape_map.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/calibration.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/split.hpp>
#include <dynapipe/cost/stage_costs.hpp>
#include <dynapipe/cost/transfer.hpp>
#include <dynapipe/plan/options.hpp>
#include <dynapipe/schedule/problem.hpp>

namespace dynapipe {

/// What a micro-batch of one shape is to a pipeline: its time on its slowest device, and how many of it may be in
/// flight.
struct shape_price {
  nanoseconds time{0};
  std::int64_t in_flight =
      0;  ///< most micro-batches of this shape that a device can hold at once; 0: not even one fits
};

/// Costs of micro-batches on a given pipeline: model, stages, devices, memory and links in one place.
template <cost_model CostModel>
class pipeline_costs {
 public:
  /// @throws error where the model, cluster or options are unsound, a given split does not fit the model, or a given
  /// calibration the stages; infeasible where the model's state alone exceeds a device.
  pipeline_costs(const model_spec& model, const cluster_spec& cluster, const CostModel& cost,
                 const planner_options& options)
      : model_{model}, cluster_{cluster}, cost_{cost}, options_{options}, stage_device_{place_stages(options)} {
    require_sound(model);
    require_sound(cluster);
    require_sound(options.shapes);
    if (options.split.empty()) {
      stages_ = split_layers(model, static_cast<std::int64_t>(stage_device_.size()));
    } else {
      require_split(model, options.split, stage_device_.size());
      stages_ = options.split;
    }
    if (options.calibrated) {
      require_sound(*options.calibrated);
      if (options.calibrated->stages.size() != stages_.size())
        throw error{"the calibration is of " + std::to_string(options.calibrated->stages.size()) +
                    " stages, the pipeline has " + std::to_string(stages_.size())};
    }
    const bytes memory = options.memory_limit.value_or(cluster.memory);
    for (std::size_t d = 0; d < devices(); ++d) {
      const bytes state = state_of_device(model, stages_, stage_device_, to_id<device_id>(d), cost);
      const bytes fixed{saturating_add(state.value(), cluster.reserve.value())};
      if (fixed >= memory)
        throw infeasible{"device " + std::to_string(d) + ": weights, gradients, optimizer states and reserve need " +
                             std::to_string(fixed.value()) + " bytes, the device has " +
                             std::to_string(memory.value()) + " (raise --pp, --tp or --memory-limit)",
                         fixed, memory};
      fixed_.push_back(fixed);
      room_.push_back(memory - fixed);
    }
    ahead_.assign(devices(), 0);
    for (std::size_t s = 0; s < stages_.size(); ++s)
      ahead_[index(stage_device_[s])] =
          std::max(ahead_[index(stage_device_[s])], static_cast<std::int64_t>(stages_.size() - s));
    choose_priced();
  }

  [[nodiscard]] const model_spec& model() const { return model_; }
  [[nodiscard]] const cluster_spec& cluster() const { return cluster_; }
  /// What plans name as the source of their costs.
  [[nodiscard]] std::string source() const {
    if constexpr (requires { std::string{cost_.source()}; }) {
      return std::string{cost_.source()};
    } else {
      return "custom";
    }
  }
  [[nodiscard]] const planner_options& options() const { return options_; }
  /// Whether times by shape are convex in rows, as `partition_options` asks. A calibration's factors round.
  [[nodiscard]] bool convex_rows() const { return has_convex_rows(cost_) && !options_.calibrated; }
  [[nodiscard]] const std::vector<stage_spec>& stages() const { return stages_; }
  [[nodiscard]] const std::vector<device_id>& stage_device() const { return stage_device_; }
  [[nodiscard]] std::size_t devices() const { return static_cast<std::size_t>(options_.pipeline); }
  /// Memory of each device that the model's state and the reserve take.
  [[nodiscard]] const std::vector<bytes>& fixed() const { return fixed_; }
  /// Memory of each device that is left for activations and buffers.
  [[nodiscard]] const std::vector<bytes>& room() const { return room_; }

  /// Whether the cost model extrapolates for some layer of a micro-batch of this shape.
  [[nodiscard]] bool extrapolates(const work_shape& s) const {
    return extrapolates_somewhere(model_, stages_, cost_, s, options_.recompute);
  }

  /// The tensors that one rank sends of a micro-batch of this shape from `stage` to the stage after it.
  [[nodiscard]] std::vector<std::array<std::int64_t, 3>> tensors_after(std::size_t stage, const shape& s) const {
    return boundary_tensors(model_, stages_[stage], s, options_.group());
  }

  /// How long a micro-batch of this shape is under way between the two stages that are farthest apart, there and back;
  /// each row rounded by itself, so that it is linear in rows. O(stages).
  [[nodiscard]] nanoseconds round_trip(const shape& s) const {
    std::int64_t longest = 0;
    for (std::size_t i = 0; i + 1 < stages_.size(); ++i) {
      const link_spec* link = link_between(i, 0);
      if (link == nullptr) continue;
      const auto of = [&](std::int64_t rows) {
        const shape sent{rows, s.input, s.target};
        return boundary_time(*link, boundary_bytes(model_, stages_[i], sent, options_.group()), options_.group())
            .value();
      };
      const std::int64_t none = of(0);
      longest = std::max(longest, saturating_add(none, saturating_mul(s.rows, of(1) - none)));
    }
    return nanoseconds{saturating_mul(2, longest)};
  }

  /// The pipeline of one replica that runs micro-batches of these shapes. O(shapes x stages).
  [[nodiscard]] pipeline_problem problem(const std::vector<work_shape>& shapes, std::int64_t replica) const {
    pipeline_problem result{.devices = devices(),
                            .micro_batches = shapes.size(),
                            .stage_device = stage_device_,
                            .cost = {},
                            .hops = {},
                            .loads = {},
                            .capacity = room_,
                            .queues = options_.queues};
    std::vector<const link_spec*> links;
    for (std::size_t s = 0; s + 1 < stages_.size(); ++s)
      links.push_back(link_between(s, replica));
    for (const work_shape& s : shapes)
      append(result, stages_, s, links);
    return result;
  }

  /// Room for `price`, to be used again from call to call.
  struct workspace {
    pipeline_problem alone;
    memory_workspace memory;
    std::vector<std::int64_t> time;
    std::vector<std::int64_t> held;
    std::vector<const link_spec*> links;
  };

  [[nodiscard]] workspace make_workspace() const {
    std::vector<bytes> capacity;
    for (const priced_device& d : priced_)
      capacity.push_back(d.room);
    return {.alone = {.devices = priced_.size(),
                      .micro_batches = 1,
                      .stage_device = priced_stage_device_,
                      .cost = {},
                      .hops = {},
                      .loads = {},
                      .capacity = std::move(capacity),
                      .queues = {}},
            .memory = {},
            .time = {},
            .held = {},
            .links = std::vector<const link_spec*>(priced_stages_.size() - 1, nullptr)};
  }

  /// Time and memory of one shape. O(stages that differ).
  [[nodiscard]] shape_price price(const work_shape& s, workspace& room) const {
    auto& [alone, memory, time, held, links] = room;
    alone.cost.clear();
    alone.hops.clear();
    alone.loads.clear();
    append(alone, priced_stages_, s, links);
    time.assign(priced_.size(), 0);
    held.assign(priced_.size(), 0);
    for (std::size_t i = 0; i < priced_stages_.size(); ++i) {
      const std::size_t d = alone.device_of(i);
      const stage_cost& cost = alone.cost[i];
      time[d] = saturating_add(time[d], saturating_add(cost.forward.value(), cost.backward.value()));
      held[d] = saturating_add(held[d], saturating_add(cost.stored.value(), alone.loads[i].value()));
      if (i > 0) held[d] = saturating_add(held[d], alone.hop(0, i - 1).forward_bytes.value());
    }
    shape_price result{nanoseconds{*std::max_element(time.begin(), time.end())}, int64_limit};
    if (result.time == nanoseconds::max()) return {result.time, 0};
    const std::span<const wide_int> peak = memory_alone(alone, 0, memory);
    for (std::size_t d = 0; d < priced_.size(); ++d) {
      if (peak[d] > priced_[d].room.value()) return {result.time, 0};
      const std::int64_t spare = priced_[d].room.value() - saturate(peak[d]);
      // A device needs no more in flight than there are stages from it to the end.
      if (spare / std::max<std::int64_t>(1, held[d]) + 1 < priced_[d].ahead)
        result.in_flight = std::min(result.in_flight, spare / std::max<std::int64_t>(1, held[d]) + 1);
    }
    return result;
  }

  /// Refuses a sample, padded to a shape of one row, that no plan can hold.
  ///
  /// @throws infeasible naming the sample, its lengths, the device, the bytes needed and there, and what would help;
  /// where the cost model refuses the shape, its reason: infeasible where it is memory, otherwise error.
  void require_fit(const sample_lengths& lengths, const shape& s, std::size_t sample_number,
                   std::int64_t source_row) const {
    const auto both = [](std::int64_t input, std::int64_t target) {
      return std::to_string(input) + (target > 0 ? " + " + std::to_string(target) : std::string{});
    };
    const std::string who = "sample " + std::to_string(sample_number) + " (data row " + std::to_string(source_row) +
                            ", " + both(lengths.input, lengths.target) + " tokens, padded to " +
                            both(s.input, s.target) + ")";
    require_run(s, who);
  }

  /// Refuses a micro-batch, called `who`, that no plan can hold; throws as `require_fit`.
  void require_run(const work_shape& s, const std::string& who) const {
    const pipeline_problem alone = problem({s}, 0);
    const std::string reason = first_refusal(model_, stages_, cost_, s, options_.recompute);
    const std::vector<bytes> peak = memory_alone(alone, 0);
    for (std::size_t d = 0; d < devices(); ++d) {
      if (!reason.empty() && peak[d] == bytes::max())
        throw infeasible{who + " cannot be run: " + reason, peak[d], room_[d]};
      if (peak[d] > room_[d])
        throw infeasible{
            who + " does not fit device " + std::to_string(d) + ": it needs " +
                (peak[d] == bytes::max() ? std::string{"more than 2^63"} : std::to_string(peak[d].value())) +
                " bytes for activations and buffers, there are " + std::to_string(room_[d].value()) +
                " beside the model's state" + advice(),
            peak[d], room_[d]};
    }
    if (!reason.empty()) throw error{who + " cannot be run: " + reason};
    workspace room = make_workspace();
    if (price(s, room).time == nanoseconds::max()) throw error{who + " would take longer than 2^63 ns"};
  }

 private:
  [[nodiscard]] std::string advice() const {
    return options_.recompute == recompute_mode::full
               ? " (raise --pp, --tp or --memory-limit, or leave the sample out)"
               : " (try --recompute full, raise --pp, --tp or --memory-limit, or leave the sample out)";
  }

  [[nodiscard]] const link_spec* link_between(std::size_t stage, std::int64_t replica) const {
    const auto from = static_cast<std::int64_t>(index(stage_device_[stage]));
    const auto to = static_cast<std::int64_t>(index(stage_device_[stage + 1]));
    if (from == to) return nullptr;
    const rank_grid grid{.devices = options_.pipeline, .inner = options_.tensor};
    return grid.crosses_nodes(cluster_, replica, from, to) ? &cluster_.inter_node : &cluster_.intra_node;
  }

  /// Chooses the stages that a price is computed from: of neighbours that are alike, each alone on its device, the
  /// first, which has the most micro-batches in flight.
  void choose_priced() {
    const bool alone = stages_.size() == devices() && !options_.calibrated;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const std::size_t d = index(stage_device_[s]);
      if (alone && s > 1 && alike(s - 1, s)) continue;
      priced_stages_.push_back(stages_[s]);
      if (alone) {
        priced_stage_device_.push_back(to_id<device_id>(priced_.size()));
        priced_.push_back({room_[d], ahead_[d]});
      }
    }
    if (alone) return;
    priced_stage_device_ = stage_device_;
    for (std::size_t d = 0; d < devices(); ++d)
      priced_.push_back({room_[d], ahead_[d]});
  }

  /// Whether stages `a` > 0 and `b`, the one after it, cost the same and receive and send the same.
  [[nodiscard]] bool alike(std::size_t a, std::size_t b) const {
    const stage_spec& x = stages_[a];
    const stage_spec& y = stages_[b];
    return !x.embedding && !y.embedding && !x.head && !y.head && x.encoder.count() == y.encoder.count() &&
           x.decoder.count() == y.decoder.count() && (x.encoder.from > 0) == (y.encoder.from > 0) &&
           (x.decoder.from > 0) == (y.decoder.from > 0) &&
           (stages_[a - 1].decoder.count() > 0) == (x.decoder.count() > 0);
  }

  void append(pipeline_problem& problem, const std::vector<stage_spec>& stages, const work_shape& work,
              const std::vector<const link_spec*>& links) const {
    const tensor_group group = options_.group();
    const std::size_t first = problem.cost.size();
    const shape& s = work.padded;
    costs_of_stages(model_, stages, cost_, work, options_.recompute, problem.cost, group);
    if (options_.calibrated)
      for (std::size_t i = 0; i < stages.size(); ++i)
        scale_times(*options_.calibrated, i, problem.cost[first + i]);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      problem.loads.push_back(load_bytes(model_, stages[i], s));
      if (i + 1 == stages.size()) break;
      const bytes size = boundary_bytes(model_, stages[i], s, group);
      const nanoseconds time = links[i] == nullptr ? nanoseconds{0} : boundary_time(*links[i], size, group);
      problem.hops.push_back({size, time, size, time});
    }
  }

  model_spec model_;
  cluster_spec cluster_;
  CostModel cost_;
  planner_options options_;
  std::vector<device_id> stage_device_;
  std::vector<stage_spec> stages_;
  std::vector<bytes> fixed_;
  std::vector<bytes> room_;
  /// A device as prices see it.
  struct priced_device {
    bytes room;
    std::int64_t ahead;
  };
  std::vector<stage_spec> priced_stages_;
  std::vector<device_id> priced_stage_device_;
  std::vector<priced_device> priced_;
  std::vector<std::int64_t> ahead_;  ///< stages from a device's first to the end: what 1F1B holds in flight
};

namespace detail {

/// Prices by shape, asked for many times while samples are cut.
template <class Price>
class price_cache {
 public:
  explicit price_cache(Price price) : price_{std::move(price)} {}

  const shape_price& operator()(const shape& s) {
    return known_.find_or(s, [&] { return price_(s); });
  }

 private:
  Price price_;
  shape_map<shape_price> known_;
};

}  // namespace detail

}  // namespace dynapipe
