#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <dynapipe/core/error.hpp>
#include <dynapipe/cost/calibration.hpp>
#include <dynapipe/ext/files.hpp>
#include <dynapipe/ext/json_reader.hpp>

namespace dynapipe {

namespace json_detail {

[[nodiscard]] inline pass_scale read_pass_scale(const reader& in) {
  in.allow_only({"scale", "evidence"});
  return {.scale = in["scale"].integer(), .evidence = in["evidence"].integer()};
}

[[nodiscard]] inline std::array<pass_scale, 3> read_stage_scales(const reader& in) {
  in.allow_only({"forward", "backward", "weight"});
  return {read_pass_scale(in["forward"]), read_pass_scale(in["backward"]), read_pass_scale(in["weight"])};
}

}  // namespace json_detail

/// `known` as a file of format "dynapipe.calibration", version 1: keys in this order, one stage a line. Factors
/// (`scale`) are in 2^-20, `evidence` in 2^-10 observations. Equal calibrations give equal bytes on every machine.
[[nodiscard]] inline std::string to_json_text(const calibration& known) {
  std::string out;
  json_detail::put(out, R"({"format":"dynapipe.calibration","version":1,"epoch":)", known.epoch, R"(,"stages":[)");
  for (std::size_t s = 0; s < known.stages.size(); ++s) {
    out += s == 0 ? "\n" : ",\n";
    for (const auto& [pass, name] : timed_pass_names) {
      const pass_scale& scale = known.stages[s][static_cast<std::size_t>(pass)];
      json_detail::put(out, pass == timed_pass::forward ? "{\"" : ",\"", name, R"(":{"scale":)", scale.scale,
                       R"(,"evidence":)", scale.evidence, "}");
    }
    out += '}';
  }
  return out += "]}\n";
}

/// The calibration that a "dynapipe.calibration" text describes; `name` is what errors call the text.
///
/// Guarantee: calibration_from_json(to_json_text(c)) == c for every sound calibration.
///
/// @throws error with line and column, or field and value, where it is no JSON, no such text, or not sound.
[[nodiscard]] inline calibration calibration_from_json(std::string_view text, const std::string& name = "calibration") {
  const json_detail::json root = json_detail::parse(text, name);
  const json_detail::reader in{root, name, false};
  in.require_format("dynapipe.calibration");
  in.allow_only({"format", "version", "epoch", "stages"});
  calibration known{.epoch = in["epoch"].integer(), .stages = in["stages"].list(json_detail::read_stage_scales)};
  try {
    require_sound(known);
  } catch (const error& unsound) {
    throw error{name + ": " + unsound.what()};
  }
  return known;
}

/// Reads a calibration's file; see `calibration_from_json`.
///
/// @throws error as `calibration_from_json`, or where the file cannot be read.
[[nodiscard]] inline calibration load_calibration(const std::filesystem::path& path) {
  return calibration_from_json(read_file(path), path.string());
}

/// Writes a calibration's file, whole or not at all.
///
/// @throws error naming the path, where it cannot be written.
inline void save(const calibration& known, const std::filesystem::path& path) { write_file(path, to_json_text(known)); }

}  // namespace dynapipe
