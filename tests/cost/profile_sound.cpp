#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/profile_sound.hpp>

using namespace dynapipe;

namespace {

profile_point padded_point(shape s, std::int64_t forward, layer_kind kind = layer_kind::decoder) {
  profile_point point;
  point.kind = kind;
  point.padded = s;
  point.forward = nanoseconds{forward};
  point.backward = nanoseconds{2 * forward};
  point.weight = nanoseconds{forward};
  point.stored = bytes{1000};
  point.weight_stored = bytes{400};
  point.forward_peak = bytes{1500};
  point.backward_peak = bytes{700};
  return point;
}

profile sound_profile() {
  profile p;
  p.device = "d";
  p.tensor_parallel = 2;
  p.hidden = 64;
  p.heads = 4;
  p.kv_heads = 2;
  p.ffn = 256;
  p.points = {padded_point({1, 512, 0}, 100), padded_point({2, 512, 0}, 190)};
  p.links = {{link_place::inter_node, bytes{1024}, nanoseconds{50}}};
  return p;
}

profile_point packed_point(varlen_shape v, layer_kind kind = layer_kind::decoder) {
  profile_point point = padded_point({}, 100, kind);
  point.varlen = true;
  point.packed = v;
  return point;
}

/// What is wrong with a sound profile after `change`; "" if nothing.
std::string complaint(const std::function<void(profile&)>& change) {
  profile p = sound_profile();
  change(p);
  try {
    require_sound(p, "f");
  } catch (const error& e) {
    return e.what();
  }
  return "";
}
std::string of_point(const std::function<void(profile_point&)>& change) {
  return complaint([&](profile& p) { change(p.points[1]); });
}
std::string of_varlen(varlen_shape v, layer_kind kind = layer_kind::decoder) {
  return complaint([&](profile& p) {
    p.points.push_back(packed_point({40, 1600, 1, 40, 1600, 1600}, kind));
    p.points.push_back(packed_point({80, 6400, 1, 40, 1600, 3200}, kind));
    p.points.push_back(packed_point(v, kind));
  });
}

const std::string second = "f: points[1] (decoder, recompute none, rows 2, input 512, target 0): ";

}  // namespace

TEST_CASE("profile: one that is sound is left alone") {
  CHECK(complaint([](profile&) {}) == "");
  CHECK(complaint([](profile& p) { p.hidden = p.heads = p.kv_heads = p.ffn = 0; }) == "");
  CHECK(complaint([](profile& p) { p.tensor_parallel = 4; }) == "");
  CHECK(complaint([](profile& p) { p.links.clear(); }) == "");
  CHECK(of_point([](profile_point& q) { q.forward = nanoseconds{999'999'999'999}; }) == "");
  CHECK(of_point([](profile_point& q) { q.forward_peak = bytes{0}; }) == "");
  CHECK(of_point([](profile_point& q) { q.padded = {std::int64_t{1} << 31, std::int64_t{1} << 31, 0}; }) == "");
  CHECK(complaint([](profile& p) {
          for (const std::int64_t rows : {1, 2}) {
            p.points.push_back(padded_point({rows, 64, 0}, 0, layer_kind::embedding));
            p.points.back().weight = nanoseconds{0};
          }
        }) == "");
  CHECK(complaint([](profile& p) {
          p.points.push_back({.padded = {64, 512, 0}, .out_of_memory = true});
          p.points.push_back({.padded = {64, 512, 0}, .out_of_memory = true});
        }) == "");
}

TEST_CASE("profile: an unsound layer, degree, parameter or link is refused by its field") {
  CHECK(complaint([](profile& p) { p.hidden = 0; }) == "f: layer.hidden must lie in 1..1000000, it is 0");
  CHECK(complaint([](profile& p) { p.heads = -1; }) == "f: layer.heads must lie in 1..1000000, it is -1");
  CHECK(complaint([](profile& p) { p.kv_heads = 0; }) == "f: layer.kv_heads must lie in 1..1000000, it is 0");
  CHECK(complaint([](profile& p) { p.ffn = 0; }) == "f: layer.ffn must lie in 1..100000000, it is 0");
  CHECK(complaint([](profile& p) { p.kv_heads = 3; }) == "f: layer.heads (4) must be a multiple of layer.kv_heads (3)");
  CHECK(complaint([](profile& p) { p.tensor_parallel = 0; }) == "f: tensor_parallel must lie in 1..4, it is 0");
  CHECK(complaint([](profile& p) { p.tensor_parallel = 5; }) == "f: tensor_parallel must lie in 1..4, it is 5");
  CHECK(complaint([](profile& p) { p.parameters[2] = bytes{-1}; }) ==
        "f: parameters_bytes.decoder must lie in 0..1125899906842624, it is -1");
  CHECK(complaint([](profile& p) { p.points.clear(); }) == "f: there are no points: nothing was measured");
  CHECK(complaint([](profile& p) { p.links[0].size = bytes{0}; }) ==
        "f: links[0] (inter_node): bytes must lie in 1..1125899906842624, it is 0");
  CHECK(complaint([](profile& p) { p.links[0].time = nanoseconds{-1}; }) ==
        "f: links[0] (inter_node): ns must lie in 1..999999999999, it is -1");
  CHECK(complaint([](profile& p) { p.links[0].time = nanoseconds{0}; }) != "");
}

TEST_CASE("profile: an unsound point is refused by its number, kind, recomputation and shape") {
  CHECK(of_point([](profile_point& q) { q.forward = nanoseconds{0}; }) ==
        second + "forward_ns must be above 0, it is 0");
  CHECK(of_point([](profile_point& q) { q.backward = nanoseconds{-3}; }) ==
        second + "backward_ns must be above 0, it is -3");
  CHECK(of_point([](profile_point& q) { q.weight = nanoseconds{-3}; }) ==
        second + "weight_ns must not be negative, it is -3");
  CHECK(of_point([](profile_point& q) { q.forward = nanoseconds{1'000'000'000'000}; }) ==
        second + "forward_ns is 1000000000000, 1000 seconds or more: is the unit nanoseconds?");
  CHECK(of_point([](profile_point& q) { q.weight = q.backward + nanoseconds{1}; }) ==
        second + "weight_ns (381) must not be above backward_ns (380)");
  CHECK(of_point([](profile_point& q) { q.weight_stored = bytes{1001}; }) ==
        second + "weight_stored_bytes (1001) must not be above stored_bytes (1000)");
  CHECK(of_point([](profile_point& q) { q.stored = bytes{1501}; }) ==
        second + "stored_bytes (1501) must not be above forward_peak_bytes (1500)");
  CHECK(of_point([](profile_point& q) { q.stored = bytes{-1}; }) ==
        second + "stored_bytes must not be negative, it is -1");
  CHECK(of_point([](profile_point& q) { q.backward_peak = bytes{(std::int64_t{1} << 50) + 1}; }) ==
        second + "backward_peak_bytes is 1125899906842625, more than 2^50: is the unit bytes?");
  CHECK(of_point([](profile_point& q) { q.out_of_memory = true; }) ==
        second + "it ran out of memory, so forward_ns must be 0, it is 190");
  CHECK(of_point([](profile_point& q) { q.padded.rows = 0; }) ==
        "f: points[1] (decoder, recompute none, rows 0, input 512, target 0): rows must lie in 1..2147483648, it is 0");
  CHECK(of_point([](profile_point& q) { q.padded.input = 0; }) != "");
  CHECK(of_point([](profile_point& q) { q.padded.input = (std::int64_t{1} << 31) + 1; }) != "");
  CHECK(of_point([](profile_point& q) { q.padded.target = -1; }) != "");
  CHECK(of_point([](profile_point& q) { q.kind = layer_kind::cross_decoder; }) ==
        "f: points[1] (cross_decoder, recompute none, rows 2, input 512, target 0): target must lie in 1..2147483648, "
        "it is 0");
}

TEST_CASE("profile: sums of varlen shapes must be sums of lengths") {
  CHECK(of_varlen({10, 34, 3}) == "");   // 3, 3 and 4
  CHECK(of_varlen({10, 100, 3}) == "");  // nearly all tokens in one
  CHECK(of_varlen({9, 27, 3}) == "");    // three of one length
  CHECK(of_varlen({9, 15, 3}) == "");    // the same under a window of 1
  CHECK(of_varlen({10, 0, 3}) == "");    // nothing but padding
  CHECK(of_varlen({10, 101, 3}) ==
        "f: points[4] (decoder, recompute none, tokens 10, squares 101, samples 3): squares (101) cannot be a sum of "
        "squared lengths: for tokens 10 it lies in 0..tokens^2");
  CHECK(of_varlen({10, 100, 1}) == "");
  CHECK(of_varlen({9, -1, 3}) != "");
  CHECK(of_varlen({0, 0, 3}) != "");
  CHECK(of_varlen({9, 27, 0}) != "");
  CHECK(of_varlen({(std::int64_t{1} << 31) + 1, std::int64_t{1} << 62, 3}) != "");
  CHECK(of_varlen({std::int64_t{1} << 31, std::int64_t{1} << 62, 1}) == "");
  const layer_kind cross = layer_kind::cross_decoder;
  CHECK(of_varlen({10, 34, 3}, cross) != "");           // reads no token
  CHECK(of_varlen({7, 25, 2, 3, 5, 10}, cross) == "");  // 3 with 2, 4 with 1
  CHECK(of_varlen({7, 25, 2, 3, 5, 12}, cross) != "");  // 12^2 > 25 * 5
  CHECK(of_varlen({7, 25, 2, 3, 5, -1}, cross) != "");
  CHECK(of_varlen({7, 25, 2, 3, 4, 10}, cross) == "");
  CHECK(of_varlen({7, 25, 2, 3, 10, 10}, cross) ==
        "f: points[4] (cross_decoder, recompute none, tokens 7, squares 25, samples 2, target_tokens 3, target_squares "
        "10, cross_pairs 10): target_squares (10) cannot be a sum of squared lengths: for target_tokens 3 it lies in "
        "0..target_tokens^2");
}

TEST_CASE("profile: repeats that disagree by more than 20 % are named with their values") {
  const auto repeat = [](const std::function<void(profile_point&)>& change) {
    return complaint([&](profile& p) {
      p.points.push_back(p.points[0]);
      change(p.points[2]);
    });
  };
  const std::string first = "f: points[0] (decoder, recompute none, rows 1, input 512, target 0): ";
  CHECK(repeat([](profile_point&) {}) == "");
  CHECK(repeat([](profile_point& q) { q.forward = nanoseconds{120}; }) == "");
  CHECK(repeat([](profile_point& q) { q.forward = nanoseconds{121}; }) ==
        first + "it measures the same as points[2], but their forward_ns disagree by more than 20 %: 100 and 121");
  CHECK(repeat([](profile_point& q) { q.backward_peak = bytes{500}; }) ==
        first +
            "it measures the same as points[2], but their backward_peak_bytes disagree by more than 20 %: 700 and "
            "500");
  CHECK(repeat([](profile_point& q) { q.recompute = recompute_mode::none, q.weight = nanoseconds{0}; }) == "");
  CHECK(repeat([](profile_point& q) { q.stored = q.weight_stored = q.forward_peak = bytes{0}; }) == "");
  CHECK(repeat([](profile_point& q) { q = {.padded = q.padded, .out_of_memory = true}; }) ==
        first + "it measures the same as points[2], but only one of them ran out of memory");
  // Of three: the two that are farthest apart. One that did not measure the amount comes first.
  CHECK(complaint([](profile& p) {
          p.points.push_back(p.points[0]);
          p.points.push_back(p.points[0]);
          p.points[0].stored = p.points[0].weight_stored = bytes{0};
          p.points[2].stored = bytes{1200};
          p.points[3].stored = bytes{999};
        }) == first.substr(0, 10) + "2" + first.substr(11) +
                  "it measures the same as points[3], but their stored_bytes disagree by more than 20 %: 1200 and 999");
}

TEST_CASE("profile: one shape alone is refused") {
  const std::string one =
      "it is the only shape of head with recompute full that ran: one point tells nothing about how costs grow, "
      "measure at least 2 lengths";
  const auto with = [](std::vector<profile_point> points) {
    return complaint([&](profile& p) {
      for (profile_point& q : points) {
        q.recompute = recompute_mode::full;
        p.points.push_back(q);
      }
    });
  };
  const profile_point head = padded_point({1, 64, 0}, 100, layer_kind::head);
  const profile_point longer = padded_point({1, 65, 0}, 100, layer_kind::head);
  const profile_point failed{.kind = layer_kind::head, .padded = {1, 65, 0}, .out_of_memory = true};
  CHECK(with({head, longer}) == "");
  CHECK(with({head}) == "f: points[2] (head, recompute full, rows 1, input 64, target 0): " + one);
  CHECK(with({head, head}).ends_with(one));
  CHECK(with({head, failed}).ends_with(one));
  CHECK(with({failed}) ==
        "f: points[2] (head, recompute full, rows 1, input 65, target 0): no point of head with recompute full ran: "
        "all are out of memory, measure at least 2 smaller shapes");
}

TEST_CASE("profile: repeats are merged into their mean, in the order of first appearance") {
  profile p = sound_profile();
  CHECK(merged(p) == p);
  profile_point again = p.points[1];
  again.forward = nanoseconds{191};
  again.weight = nanoseconds{0};
  again.stored = bytes{1003};
  p.points.push_back(again);
  again.forward = nanoseconds{193};
  p.points.push_back(again);
  p.points.push_back({.padded = {64, 512, 0}, .out_of_memory = true});
  p.points.push_back(p.points.back());
  std::reverse(p.points.begin(), p.points.end());
  const profile m = merged(p);
  REQUIRE(m.points.size() == 3);
  CHECK(m.points[0] == p.points[0]);
  CHECK(m.points[1].forward == nanoseconds{191});  // of 190, 191 and 193
  CHECK(m.points[1].backward == nanoseconds{380});
  CHECK(m.points[1].weight == nanoseconds{190});  // measured once
  CHECK(m.points[1].stored == bytes{1002});
  CHECK(m.points[2] == sound_profile().points[0]);
  CHECK(merged(m) == m);
  require_sound(m);
}

TEST_CASE("profile: a merged part stays below its whole, where only some measured it") {
  profile p = sound_profile();
  profile_point low = p.points[0];
  low.weight = low.backward = nanoseconds{200};
  low.stored = low.weight_stored = low.forward_peak = bytes{1000};
  profile_point high = low;
  high.backward = nanoseconds{170};
  high.weight = nanoseconds{0};
  high.stored = bytes{1100};
  high.forward_peak = bytes{0};
  p.points = {low, high, p.points[1]};
  const profile m = merged(p);
  CHECK(m.points[0].backward == nanoseconds{185});
  CHECK(m.points[0].weight == nanoseconds{185});
  CHECK(m.points[0].stored == bytes{1050});
  CHECK(m.points[0].forward_peak == bytes{1050});
  require_sound(m);
}
