#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/names.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/calibration.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/stage.hpp>
#include <dynapipe/cost/transfer.hpp>
#include <dynapipe/schedule/kinds.hpp>

namespace dynapipe {

/// The schedules that `planner` knows.
enum class schedule_kind : std::uint8_t { adaptive, one_f_one_b };

/// Where stages lie: one a device (`linear`), in turn over the devices (`interleaved`), or there and back (`v`).
enum class stage_placement : std::uint8_t { linear, interleaved, v };

inline constexpr name_table<schedule_kind, 2> schedule_names{
    {{schedule_kind::adaptive, "adaptive"}, {schedule_kind::one_f_one_b, "1f1b"}}};
inline constexpr name_table<stage_placement, 3> placement_names{
    {{stage_placement::linear, "linear"}, {stage_placement::interleaved, "interleaved"}, {stage_placement::v, "v"}}};

[[nodiscard]] constexpr std::string_view to_string(schedule_kind value) { return name_in(schedule_names, value); }
[[nodiscard]] constexpr std::string_view to_string(stage_placement value) { return name_in(placement_names, value); }

/// What `planner` plans for.
struct planner_options {
  std::int64_t pipeline = 1;       ///< devices of one replica's pipeline
  std::int64_t data = 1;           ///< replicas
  std::int64_t tensor = 1;         ///< ranks that share each device's layers; must be the cost model's
  bool sequence_parallel = false;  ///< they also share the tokens between layers; must be the cost model's
  std::int64_t stages_per_device = 1;
  stage_placement placement = stage_placement::linear;
  schedule_kind schedule = schedule_kind::adaptive;
  recompute_mode recompute = recompute_mode::none;
  queue_style queues = queue_style::per_direction;
  std::optional<bytes> memory_limit{};  ///< per device, in place of the cluster's memory
  shape_options shapes{};
  std::vector<stage_spec> split{};          ///< layers of each stage; empty: as `split_layers` cuts them
  std::optional<calibration> calibrated{};  ///< corrects the cost model's times

  [[nodiscard]] tensor_group group() const { return {.ranks = tensor, .sequence = sequence_parallel}; }
};

/// The device of every stage. @throws error where counts are not positive, or `linear` is asked for with several stages
/// a device.
template <class Lazy = void>
[[nodiscard]] std::vector<device_id> place_stages(const planner_options& options) {
  const auto positive = [](std::int64_t value, const char* name) { require_within("", name, value, 1, 1'000'000); };
  positive(options.pipeline, "--pp");
  positive(options.data, "--dp");
  positive(options.tensor, "--tp");
  positive(options.stages_per_device, "--stages-per-device");
  if (options.pipeline * options.stages_per_device > 1'000'000)
    throw error{"--pp " + std::to_string(options.pipeline) + " with --stages-per-device " +
                std::to_string(options.stages_per_device) + " makes more stages than any model has layers"};
  if (options.stages_per_device > 1 && options.placement == stage_placement::linear)
    throw error{"--placement linear puts one stage on a device (use interleaved or v with --stages-per-device " +
                std::to_string(options.stages_per_device) + ")"};
  std::vector<device_id> devices;
  for (std::int64_t round = 0; round < options.stages_per_device; ++round)
    for (std::int64_t d = 0; d < options.pipeline; ++d) {
      const bool back = options.placement == stage_placement::v && round % 2 == 1;
      devices.push_back(to_id<device_id>(static_cast<std::size_t>(back ? options.pipeline - 1 - d : d)));
    }
  return devices;
}

/// Options as (name, value) texts, for a plan's provenance.
template <class Lazy = void>
[[nodiscard]] std::vector<std::pair<std::string, std::string>> describe(const planner_options& options) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  std::vector<std::pair<std::string, std::string>> result{
      {"pp", number(options.pipeline)},
      {"dp", number(options.data)},
      {"tp", number(options.tensor)},
      {"sequence_parallel", options.sequence_parallel ? "true" : "false"},
      {"stages_per_device", number(options.stages_per_device)},
      {"placement", std::string{to_string(options.placement)}},
      {"schedule", std::string{to_string(options.schedule)}},
      {"recompute", std::string{to_string(options.recompute)}},
      {"queues", std::string{to_string(options.queues)}},
      {"padding_multiple", number(options.shapes.padding_multiple)},
      {"separator_tokens", number(options.shapes.separator_tokens)},
      {"extra_decoder_tokens", number(options.shapes.extra_decoder_tokens)},
      {"sequence_offset", number(options.shapes.sequence_offset)}};
  if (!options.split.empty()) {
    std::string layers;
    for (const stage_spec& stage : options.split) {
      if (!layers.empty()) layers += ',';
      layers += number(stage.encoder.count() + stage.decoder.count());
    }
    result.emplace_back("split", layers);
  }
  if (options.memory_limit) result.emplace_back("memory_limit_bytes", number(options.memory_limit->value()));
  return result;
}

}  // namespace dynapipe
