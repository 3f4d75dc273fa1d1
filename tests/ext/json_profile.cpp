#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/ext/json_profile.hpp>

using namespace dynapipe;

#include "damaged_text.hpp"

namespace {

/// One of everything that a profile can hold.
profile rich_profile() {
  profile p;
  p.device = "a \"device\"\n";
  p.tensor_parallel = 2;
  p.hidden = 4096;
  p.heads = 32;
  p.kv_heads = 8;
  p.ffn = 16'384;
  p.gated = true;
  p.parameters = {bytes{5}, bytes{6}, bytes{7}, bytes{8}, bytes{9}};
  for (const std::int64_t rows : {1, 2, 4}) {
    p.points.push_back({.kind = layer_kind::cross_decoder,
                        .recompute = recompute_mode::selective,
                        .padded = {rows, 512, 64},
                        .forward = nanoseconds{100 * rows},
                        .backward = nanoseconds{200 * rows},
                        .weight = nanoseconds{90 * rows},
                        .stored = bytes{1000 * rows},
                        .weight_stored = bytes{300 * rows},
                        .forward_peak = bytes{1200 * rows},
                        .backward_peak = bytes{900 * rows}});
    p.points.push_back({.varlen = true,
                        .packed = {10 * rows, 100 * rows * rows, 3},
                        .forward = nanoseconds{100 * rows},
                        .backward = nanoseconds{200 * rows}});
    p.points.push_back({.kind = layer_kind::cross_decoder,
                        .varlen = true,
                        .packed = {7 * rows, 25 * rows * rows, 2, 3 * rows, 5 * rows * rows, 10 * rows * rows},
                        .forward = nanoseconds{100 * rows},
                        .backward = nanoseconds{200 * rows}});
  }
  p.points.push_back({.padded = {64, 512, 0}, .out_of_memory = true});
  p.links = {{link_place::intra_node, bytes{1'048'576}, nanoseconds{5000}},
             {link_place::inter_node, bytes{1}, nanoseconds{9000}}};
  return p;
}

const std::string plain =
    R"({"format": "dynapipe.profile", "version": 1, "device": "d", "dtype": "bf16", "tensor_parallel": 1,
 "layer": {"hidden": 64, "heads": 4, "ffn": 256},
 "points": [{"kind": "decoder", "recompute": "none", "rows": 1, "input": 512, "forward_ns": 10, "backward_ns": 20},
            {"kind": "decoder", "recompute": "none", "rows": 2, "input": 512, "forward_ns": 19, "backward_ns": 39}]})";

/// The plain profile with the first `from` replaced, which must be there.
std::string with(std::string_view from, std::string_view to) {
  std::string text = plain;
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string complaint(const std::string& text) {
  try {
    static_cast<void>(profile_from_json(text, "p.json"));
  } catch (const error& e) {
    return e.what();
  }
  return "";
}
std::string complaint_with(std::string_view from, std::string_view to) { return complaint(with(from, to)); }

}  // namespace

TEST_CASE("json: profiles come back as they were, and write the same bytes again") {
  profile p = rich_profile();
  const std::string text = to_json_text(p);
  CHECK(profile_from_json(text) == p);
  CHECK(to_json_text(profile_from_json(text)) == text);
  p.hidden = p.heads = p.kv_heads = p.ffn = 0;
  p.gated = false;
  p.links.clear();
  CHECK(to_json_text(p).find(R"("layer":null,)") != std::string::npos);
  CHECK(profile_from_json(to_json_text(p)) == p);
}

TEST_CASE("json: a profile's keys stand in the documented order, one point a line") {
  CHECK(to_json_text(profile_from_json(plain)) ==
        R"({"format":"dynapipe.profile","version":1,"device":"d","dtype":"bf16","tensor_parallel":1,)"
        R"("layer":{"hidden":64,"heads":4,"kv_heads":4,"ffn":256,"gated":false},)"
        R"("parameters_bytes":{"embedding":0,"encoder":0,"decoder":0,"cross_decoder":0,"head":0},)"
        "\n\"points\":[\n"
        R"({"kind":"decoder","recompute":"none","rows":1,"input":512,"target":0,"forward_ns":10,"backward_ns":20,)"
        R"("weight_ns":0,"stored_bytes":0,"weight_stored_bytes":0,"forward_peak_bytes":0,"backward_peak_bytes":0,)"
        "\"out_of_memory\":false},\n"
        R"({"kind":"decoder","recompute":"none","rows":2,"input":512,"target":0,"forward_ns":19,"backward_ns":39,)"
        R"("weight_ns":0,"stored_bytes":0,"weight_stored_bytes":0,"forward_peak_bytes":0,"backward_peak_bytes":0,)"
        "\"out_of_memory\":false}],\n\"links\":[]}\n");
  const std::string text = to_json_text(rich_profile());
  for (const char* part :
       {R"({"kind":"cross_decoder","recompute":"none","tokens":7,"squares":25,"samples":2,"target_tokens":3,)"
        R"("target_squares":5,"cross_pairs":10,"forward_ns":100,)",
        R"({"kind":"decoder","recompute":"none","tokens":20,"squares":400,"samples":3,"forward_ns":200,)",
        "\"links\":[\n{\"place\":\"intra_node\",\"bytes\":1048576,\"ns\":5000},\n{\"place\":\"inter_node\","}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  profile none;
  none.points.clear();
  CHECK(json_detail::json::parse(to_json_text(none)).at("points").empty());
}

TEST_CASE("json: a profile's file is written and read") {
  std::random_device random;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("dynapipe-profile-" + std::to_string(random()) + ".json");
  save(rich_profile(), path);
  CHECK(load_profile(path) == rich_profile());
  std::filesystem::remove(path);
  CHECK_THROWS_WITH_AS(static_cast<void>(load_profile(path)),
                       (path.string() + ": cannot be read: No such file or directory").c_str(), error);
}

TEST_CASE("json: what is no profile is refused by field and value") {
  CHECK(complaint(plain) == "");
  CHECK(complaint_with("dynapipe.profile", "dynapipe.plan") ==
        "p.json: format: must be \"dynapipe.profile\", is \"dynapipe.plan\"");
  CHECK(complaint_with("\"version\": 1", "\"version\": 2").starts_with("p.json: version: must be 1"));
  CHECK(complaint_with("\"bf16\"", "\"int8\"") == "p.json: dtype: must be one of bf16, fp16, fp32, fp64, is \"int8\"");
  CHECK(complaint_with("\"hidden\": 64", "\"hidden\": 0") ==
        "p.json: layer.hidden: must be an integer in 1..9223372036854775807, is 0");
  CHECK(complaint_with(", \"tensor_parallel\": 1", "") == "p.json: lacks the key \"tensor_parallel\"");
  CHECK(complaint_with("\"tensor_parallel\": 1", "\"tensor_parallel\": 8") ==
        "p.json: tensor_parallel must lie in 1..4, it is 8");
  CHECK(complaint_with("\"points\"", "\"dots\"") == "p.json: unknown key \"dots\"");
  CHECK(complaint_with("\"points\"", "\"parameters_bytes\": {\"mlp\": 1}, \"points\"") ==
        "p.json: parameters_bytes: unknown key \"mlp\"");
  CHECK(complaint_with("\"points\"", R"("links": [{"place": "moon", "bytes": 1, "ns": 1}], "points")") ==
        "p.json: links[0].place: must be one of intra_node, inter_node, is \"moon\"");
  CHECK(complaint_with("\"points\"", R"("links": [{"place": "intra_node", "bytes": 1, "ns": 0}], "points")") ==
        "p.json: links[0] (intra_node): ns must lie in 1..999999999999, it is 0");
  CHECK(complaint("") == "p.json:1:1: no JSON: the text ends too early");
}

TEST_CASE("json: what is no point is refused by its number, field and value") {
  CHECK(complaint_with("19", "19.5") == "p.json: points[1].forward_ns: must be an integer, is 19.5");
  CHECK(complaint_with("19", "1e1") == "p.json: points[1].forward_ns: must be an integer, is 10.0");
  CHECK(complaint_with("19", "null") == "p.json: points[1].forward_ns: must be an integer, is null");
  CHECK(complaint_with("19", "\"19\"") == "p.json: points[1].forward_ns: must be an integer, is \"19\"");
  CHECK(complaint_with("19", "NaN").starts_with("p.json:4:"));
  CHECK(complaint_with("19", "Infinity").starts_with("p.json:4:"));
  CHECK(complaint_with("19", "99999999999999999999").starts_with("p.json: points[1].forward_ns: must be an integer"));
  CHECK(complaint_with("19", "9999999999999999999").starts_with("p.json: points[1].forward_ns: must be an integer in"));
  CHECK(complaint_with("19", "-19") ==
        "p.json: points[1] (decoder, recompute none, rows 2, input 512, target 0): forward_ns must be above 0, it is "
        "-19");
  CHECK(complaint_with("19", "1000000000000").find("is the unit nanoseconds?") != std::string::npos);
  CHECK(complaint_with(", \"forward_ns\": 19", "") == "p.json: points[1]: lacks the key \"forward_ns\"");
  CHECK(complaint_with("\"forward_ns\": 19, \"backward_ns\": 39", "\"out_of_memory\": true")
            .find("it is the only shape of decoder with recompute none that ran") != std::string::npos);
  CHECK(complaint_with("\"rows\": 2, ", "") == "p.json: points[1]: lacks the key \"rows\"");
  CHECK(complaint_with("\"rows\": 2", "\"rows\": 2, \"tokens\": 5") ==
        "p.json: points[1]: has both \"tokens\" and \"rows\": a shape is either padded or varlen");
  CHECK(complaint_with("\"rows\": 2", "\"rows\": 2, \"squares\": 5") ==
        "p.json: points[1]: has \"squares\", but no \"tokens\"");
  CHECK(complaint_with("\"rows\": 2, \"input\": 512", "\"tokens\": 5, \"squares\": 25") ==
        "p.json: points[1]: lacks the key \"samples\"");
  CHECK(complaint_with("\"rows\": 2", "\"rows\": 2, \"time\": 5") == "p.json: points[1]: unknown key \"time\"");
  CHECK(complaint_with("\"none\"", "\"some\"") ==
        "p.json: points[0].recompute: must be one of none, selective, full, is \"some\"");
}

TEST_CASE("json: points of another device are refused") {
  CHECK(complaint_with("\"rows\": 2", "\"device\": \"d\", \"rows\": 2") == "");
  CHECK(complaint_with("\"rows\": 2", "\"device\": \"e\", \"rows\": 2") ==
        "p.json: points[1].device: mixed devices: this point was measured on \"e\", the profile is of \"d\"");
}

TEST_CASE("json: whatever happens to a profile's text, it is read or refused by an error") {
  constexpr int rounds = 500;
  const std::uint64_t seed = 20'240'611;
  MESSAGE("seed " << seed);
  std::mt19937_64 random{seed};
  const std::string text = to_json_text(rich_profile());
  const std::vector<std::string_view> words{"9223372036854775807",
                                            "9223372036854775808",
                                            "-9223372036854775808",
                                            "1e400",
                                            "0",
                                            "-1",
                                            "null",
                                            "true",
                                            "[]",
                                            "{}",
                                            "\"\"",
                                            "2147483648",
                                            "4611686018427387904",
                                            "0.5",
                                            "\"tokens\":1,",
                                            "\"rows\":1,"};
  int read = 0;
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string mutant = damaged(random, text, words);
    CAPTURE(round);
    try {
      const profile p = profile_from_json(mutant, "m");
      ++read;
      require_sound(merged(p));
      CHECK(profile_from_json(to_json_text(p)) == p);
    } catch (const error& e) {
      ++refused;
      CHECK(std::string_view{e.what()}.starts_with("m:"));
    }
  }
  CHECK(read > rounds / 50);
  CHECK(refused > rounds / 4);
}
