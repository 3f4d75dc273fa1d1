#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/ext/json_costs.hpp>

using namespace dynapipe;

#include "damaged_text.hpp"

namespace {

fitted_curve& amount_of(fitted_layer& layer, cost_amount amount) {
  return layer.amounts[static_cast<std::size_t>(amount)];
}

/// Two curves and a link.
fitted_costs sample() {
  fitted_costs costs;
  costs.device = "NVIDIA \"A100\"";
  costs.type = dtype::fp16;
  costs.tensor_parallel = 2;
  costs.parameters[2] = bytes{4096};
  fitted_layer& layer = costs.of(layer_kind::decoder, recompute_mode::selective);
  layer.seen = {{512, 8192}, {512, 4096}, {0, 0}};
  amount_of(layer, cost_amount::forward) = {
      true, {90'000, 5, 7, 0, 11, 0, 13, 0}, {.points = 6, .mean = 0.0125, .p95 = 0.1, .out_mean = 0.25, .out_p95 = 1}};
  amount_of(layer, cost_amount::stored) = {
      true, {.queries = (std::int64_t{1} << 61) - 1}, {.points = 2, .mean = 1.0 / 3, .p95 = 5e-324}};
  costs.links[1] = {.points = 3, .latency = nanoseconds{1500}, .gbps = 187.5, .mean_error = 0.02};
  return costs;
}

const std::string sample_text =
    R"({"format":"dynapipe.costs","version":1,"device":"NVIDIA \"A100\"","dtype":"fp16","tensor_parallel":2,)"
    R"("parameters_bytes":{"embedding":0,"encoder":0,"decoder":4096,"cross_decoder":0,"head":0},)"
    "\n\"seen\":[\n"
    R"({"kind":"decoder","recompute":"selective","tokens":[512,8192],"query_length":[512,4096],"key_length":[0,0]}],)"
    "\n\"curves\":[\n"
    R"({"kind":"decoder","recompute":"selective","amount":"forward_ns","floor":90000,"constant":5,"queries":7,"keys":0,)"
    R"("self_pairs":11,"cross_pairs":0,"self_cubes":13,"cross_cubes":0,)"
    R"("error":{"points":6,"mean":0.0125,"p95":0.1,"out_mean":0.25,"out_p95":1}},)"
    "\n"
    R"({"kind":"decoder","recompute":"selective","amount":"stored_bytes","floor":0,"constant":0,)"
    R"("queries":2305843009213693951,"keys":0,"self_pairs":0,"cross_pairs":0,"self_cubes":0,"cross_cubes":0,)"
    R"("error":{"points":2,"mean":0.3333333333333333,"p95":5e-324,"out_mean":-1,"out_p95":-1}}],)"
    "\n\"links\":[\n"
    R"({"place":"inter_node","points":3,"latency_ns":1500,"gbps":187.5,"mean_error":0.02}]})"
    "\n";

std::string complaint(const std::string& text) {
  try {
    static_cast<void>(costs_from_json(text, "c.json"));
  } catch (const error& e) {
    return e.what();
  }
  return "none";
}

/// What is wrong with the sample's text after the first `from`, which must be there, is `to`.
std::string complaint_with(std::string_view from, std::string_view to) {
  std::string text = sample_text;
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return complaint(text.replace(at, from.size(), to));
}

/// The entry of a list of the sample's text that has `part`.
std::string entry_with(std::string_view part) {
  const std::size_t at = sample_text.find(part);
  REQUIRE(at != std::string::npos);
  const std::size_t begin = sample_text.rfind('\n', at) + 1;
  std::string line = sample_text.substr(begin, sample_text.find('\n', at) - begin);
  if (line.ends_with("]}")) line.pop_back();
  return line.substr(0, line.find_last_of('}') + 1);
}

fitted_costs drawn_costs(std::mt19937_64& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  const auto amount = [&] { return below(3) == 0 ? 0 : below(std::int64_t{1} << (1 + below(61))); };
  const auto share = [&] { return static_cast<double>(below(std::int64_t{1} << 53)) * 0x1p-55; };
  const auto range = [&](std::int64_t least) {
    const std::int64_t low = least + below(5000);
    return std::array<std::int64_t, 2>{low, low + amount()};
  };
  fitted_costs costs;
  costs.device = "device " + std::to_string(below(9));
  costs.type = dtype_names[static_cast<std::size_t>(below(4))].first;
  costs.tensor_parallel = 1 + below(8);
  for (bytes& parameters : costs.parameters)
    parameters = bytes{below(std::int64_t{1} << 50)};
  for (auto& kind : costs.layers)
    for (fitted_layer& layer : kind) {
      if (below(2) == 0) continue;
      layer.seen = {range(1), range(1), range(0)};
      for (fitted_curve& fitted : layer.amounts) {
        if (below(3) == 0) continue;
        fitted = {true,
                  {amount(), amount(), amount(), amount(), amount(), amount(), amount(), amount()},
                  {1 + amount(), share(), share(), -1, -1}};
        if (below(2) == 0) fitted.error.out_mean = fitted.error.out_p95 = share();
      }
    }
  for (fitted_link& link : costs.links)
    if (below(2) == 0) link = {1 + below(100), nanoseconds{below(1'000'000)}, 1e-3 + 1e4 * share(), share()};
  return costs;
}

}  // namespace

TEST_CASE("json: the text of costs, one curve a line, and back") {
  CHECK(to_json_text(sample()) == sample_text);
  CHECK(costs_from_json(sample_text) == sample());
  fitted_costs none;
  none.device = "none";
  CHECK(costs_from_json(to_json_text(none)) == none);
  CHECK(to_json_text(none).find("\"seen\":[],\n\"curves\":[],\n\"links\":[]}\n") != std::string::npos);
}

TEST_CASE("json: any costs come back as they were, and write the same bytes again") {
  const std::uint64_t seed = 20'240'702;
  MESSAGE("seed " << seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 60; ++round) {
    const fitted_costs costs = drawn_costs(random);
    const std::string text = to_json_text(costs);
    CAPTURE(text);
    REQUIRE(costs_from_json(text) == costs);
    CHECK(to_json_text(costs_from_json(text)) == text);
  }
}

TEST_CASE("json: the file of costs is written and read") {
  std::random_device random;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("dynapipe-costs-" + std::to_string(random()) + ".json");
  save(sample(), path);
  CHECK(load_costs(path) == sample());
  std::filesystem::remove(path);
  CHECK_THROWS_WITH_AS(static_cast<void>(load_costs(path)),
                       (path.string() + ": cannot be read: No such file or directory").c_str(), error);
}

TEST_CASE("json: what is no costs is refused by field and value") {
  CHECK(complaint(sample_text) == "none");
  CHECK(complaint("{").starts_with("c.json:1:2: no JSON"));
  CHECK(complaint("[]") == "c.json: must be an object, is a list");
  CHECK(complaint_with("dynapipe.costs", "dynapipe.plan") ==
        "c.json: format: must be \"dynapipe.costs\", is \"dynapipe.plan\"");
  CHECK(complaint_with("\"version\":1", "\"version\":2").starts_with("c.json: version: must be 1"));
  CHECK(complaint_with("\"links\"", "\"cables\"") == "c.json: unknown key \"cables\"");
  CHECK(complaint_with("fp16", "int8") == "c.json: dtype: must be one of bf16, fp16, fp32, fp64, is \"int8\"");
  CHECK(complaint_with("\"tensor_parallel\":2", "\"tensor_parallel\":0") ==
        "c.json: tensor_parallel: must be an integer in 1..1000000, is 0");
  CHECK(complaint_with("\"decoder\":4096", "\"decoder\":-1") ==
        "c.json: parameters_bytes.decoder: must be an integer in 0..1125899906842624, is -1");
  CHECK(complaint_with("\"decoder\":4096,", "") == "c.json: parameters_bytes: lacks the key \"decoder\"");
}

TEST_CASE("json: what is no range or link of costs is refused by field and value") {
  CHECK(complaint_with("[512,8192]", "[512]") ==
        "c.json: seen[0].tokens: must be a list of the least and the greatest");
  CHECK(complaint_with("[512,8192]", "[512,511]") ==
        "c.json: seen[0].tokens[1]: must be an integer in 512..9223372036854775807, is 511");
  CHECK(complaint_with("[512,8192]", "[0,8192]") ==
        "c.json: seen[0].tokens[0]: must be an integer in 1..9223372036854775807, is 0");
  const std::string seen = entry_with("\"tokens\"");
  CHECK(complaint_with(seen, seen + ',' + seen) == "c.json: seen[1]: this kind and recompute stands here twice");
  CHECK(complaint_with(seen, "") ==
        "c.json: curves[0]: \"seen\" does not say where this kind and recompute was measured");
  CHECK(complaint_with("inter_node", "moon") ==
        "c.json: links[0].place: must be one of intra_node, inter_node, is \"moon\"");
  CHECK(complaint_with("187.5", "0") == "c.json: links[0].gbps: must be above 0 and at most 1e9, is 0");
  CHECK(complaint_with("187.5", "1.5e9") == "c.json: links[0].gbps: must be above 0 and at most 1e9, is 1500000000.0");
  CHECK(complaint_with("1500", "-1") == "c.json: links[0].latency_ns: must be an integer in 0..999999999999, is -1");
  CHECK(
      complaint_with("\"points\":3", "\"points\":0").starts_with("c.json: links[0].points: must be an integer in 1.."));
  const std::string link = entry_with("\"place\"");
  CHECK(complaint_with(link, link + ',' + link) == "c.json: links[1]: this place stands here twice");
}

TEST_CASE("json: what is no curve of costs is refused by field and value") {
  CHECK(complaint_with("\"queries\":7", "\"queries\":-7") ==
        "c.json: curves[0].queries: must be an integer in 0..2305843009213693951, is -7");
  CHECK(complaint_with("2305843009213693951", "2305843009213693952") ==
        "c.json: curves[1].queries: must be an integer in 0..2305843009213693951, is 2305843009213693952");
  CHECK(complaint_with("\"queries\":7", "\"queries\":7.0") == "c.json: curves[0].queries: must be an integer, is 7.0");
  CHECK(complaint_with("\"queries\":7", "\"queries\":null") ==
        "c.json: curves[0].queries: must be an integer, is null");
  CHECK(complaint_with("\"queries\":7", "\"slope\":7") == "c.json: curves[0]: unknown key \"slope\"");
  CHECK(complaint_with("\"queries\":7,", "") == "c.json: curves[0]: lacks the key \"queries\"");
  CHECK(complaint_with("\"forward_ns\"", "\"forward_ms\"").starts_with("c.json: curves[0].amount: must be one of"));
  CHECK(complaint_with("0.0125", "-0.0125") == "c.json: curves[0].error.mean: must be at least 0, is -0.0125");
  CHECK(complaint_with("0.0125", "-1") == "c.json: curves[0].error.mean: must be at least 0, is -1");
  CHECK(complaint_with("0.0125", "null") == "c.json: curves[0].error.mean: must be a number, is null");
  CHECK(complaint_with("0.25", "-2") == "c.json: curves[0].error.out_mean: must be at least 0, or -1, is -2");
  CHECK(complaint_with("0.25", "1e999").find("no JSON: a number that is too large") != std::string::npos);
  CHECK(complaint_with("\"points\":6", "\"points\":6,\"worst\":1") == "c.json: curves[0].error: unknown key \"worst\"");
  const std::string curve = entry_with("stored_bytes");
  CHECK(complaint_with(curve, curve + ',' + curve) ==
        "c.json: curves[2]: this kind, recompute and amount stands here twice");
}

TEST_CASE("json: whatever happens to the text of costs, it is read or refused by an error") {
  constexpr int rounds = 600;
  const std::uint64_t seed = 20'240'703;
  MESSAGE("seed " << seed);
  std::mt19937_64 random{seed};
  const std::vector<std::string_view> words{"9223372036854775807",
                                            "9223372036854775808",
                                            "-9223372036854775808",
                                            "2305843009213693952",
                                            "1e400",
                                            "0",
                                            "-1",
                                            "null",
                                            "true",
                                            "[]",
                                            "{}",
                                            "\"\"",
                                            "0.5",
                                            "\"keys\":1,"};
  int read = 0;
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string mutant = damaged(random, sample_text, words);
    CAPTURE(round);
    try {
      const fitted_costs costs = costs_from_json(mutant, "m");
      ++read;
      CHECK(costs_from_json(to_json_text(costs)) == costs);
    } catch (const error& e) {
      ++refused;
      CHECK(std::string_view{e.what()}.starts_with("m:"));
    }
  }
  CHECK(read > rounds / 50);
  CHECK(refused > rounds / 4);
}
