#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/plan/options.hpp>

using namespace dynapipe;

namespace {

std::vector<device_id> devices(std::vector<int> numbers) {
  std::vector<device_id> result;
  for (const int n : numbers)
    result.push_back(device_id{n});
  return result;
}

}  // namespace

TEST_CASE("place_stages: linear, interleaved and v") {
  CHECK(place_stages({.pipeline = 3}) == devices({0, 1, 2}));
  CHECK(place_stages({.pipeline = 3, .stages_per_device = 2, .placement = stage_placement::interleaved}) ==
        devices({0, 1, 2, 0, 1, 2}));
  CHECK(place_stages({.pipeline = 3, .stages_per_device = 3, .placement = stage_placement::v}) ==
        devices({0, 1, 2, 2, 1, 0, 0, 1, 2}));
  CHECK(place_stages({.pipeline = 1, .stages_per_device = 2, .placement = stage_placement::v}) == devices({0, 0}));
}

TEST_CASE("schedule and placement names go both ways") {
  for (const auto& [value, name] : schedule_names)
    CHECK(value_in(schedule_names, name) == value);
  for (const auto& [value, name] : placement_names)
    CHECK(value_in(placement_names, name) == value);
}

TEST_CASE("describe: sequence parallelism always, a split and a limit where they are given") {
  const auto value = [](const planner_options& options, const std::string& name) {
    for (const auto& [key, text] : describe(options))
      if (key == name) return text;
    return std::string{"none"};
  };
  CHECK(value({}, "sequence_parallel") == "false");
  CHECK(value({.sequence_parallel = true}, "sequence_parallel") == "true");
  CHECK(value({}, "split") == "none");
  CHECK(value({.split = {{.encoder = {0, 2}, .decoder = {0, 1}}, {.encoder = {}, .decoder = {1, 5}}}}, "split") ==
        "3,4");
  CHECK(value({}, "memory_limit_bytes") == "none");
  CHECK(value({.memory_limit = bytes{7}}, "memory_limit_bytes") == "7");
}
