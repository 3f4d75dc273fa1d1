#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include <dynapipe/ext/json_calibration.hpp>

using namespace dynapipe;

namespace {

std::string with(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string complaint(const std::string& text) {
  try {
    static_cast<void>(calibration_from_json(text, "c.json"));
  } catch (const error& e) {
    return e.what();
  }
  return "none";
}

calibration sample() {
  calibration known = uncalibrated(2);
  known.epoch = 7;
  known.stages[1][0] = {.scale = 1'310'720, .evidence = 4'096};
  known.stages[1][2] = {.scale = 3, .evidence = 0};
  return known;
}

}  // namespace

TEST_CASE("json: a calibration's text, one stage a line, and back") {
  const std::string text = to_json_text(sample());
  CHECK(text == R"({"format":"dynapipe.calibration","version":1,"epoch":7,"stages":[)"
                "\n"
                R"({"forward":{"scale":1048576,"evidence":0},"backward":{"scale":1048576,"evidence":0},)"
                R"("weight":{"scale":1048576,"evidence":0}},)"
                "\n"
                R"({"forward":{"scale":1310720,"evidence":4096},"backward":{"scale":1048576,"evidence":0},)"
                R"("weight":{"scale":3,"evidence":0}}]})"
                "\n");
  CHECK(calibration_from_json(text) == sample());
  CHECK(calibration_from_json(to_json_text(calibration{})) == calibration{});
}

TEST_CASE("json: calibrations that are not right are refused by field and value") {
  const std::string text = to_json_text(sample());
  CHECK(complaint(text) == "none");
  CHECK(complaint(with(text, "calibration", "plan")) ==
        "c.json: format: must be \"dynapipe.calibration\", is \"dynapipe.plan\"");
  CHECK(complaint(with(text, "\"version\":1", "\"version\":2")).find("c.json: version: must be 1") == 0);
  CHECK(complaint(with(text, "\"epoch\":7", "\"epoch\":-7")).find("c.json: calibration: epoch must lie in 0..") == 0);
  CHECK(complaint(with(text, "1310720", "1.5")) == "c.json: stages[1].forward.scale: must be an integer, is 1.5");
  CHECK(complaint(with(text, "1310720", "0")).find("c.json: calibration: stage 1, forward: scale must lie in 1..") ==
        0);
  CHECK(complaint(with(text, "\"scale\":3", "\"factor\":3")) == "c.json: stages[1].weight: unknown key \"factor\"");
  CHECK(complaint(with(text, "\"weight\":", "\"weights\":")).find("c.json: stages[0]: unknown key \"weights\"") == 0);
  CHECK(complaint("{").find("c.json:1:2: no JSON") == 0);
}

TEST_CASE("json: a calibration is saved and loaded") {
  std::random_device random;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("dynapipe-calibration-" + std::to_string(random()) + ".json");
  save(sample(), path);
  CHECK(load_calibration(path) == sample());
  std::filesystem::remove(path);
  CHECK_THROWS_AS(static_cast<void>(load_calibration(path)), error);
}
