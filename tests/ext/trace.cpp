#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <dynapipe/ext/trace.hpp>

#include "drawn_plans.hpp"

using namespace dynapipe;

namespace {

using json = nlohmann::json;

std::int64_t in_ns(const json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size()))
    ++n;
  return n;
}

std::vector<plan> some_plans() {
  std::vector<plan> plans;
  for (const bool both : {false, true})
    for (const queue_style queues : {queue_style::single, queue_style::per_peer, queue_style::per_direction})
      plans.push_back(drawn_plans::planned(both, 30, queues));
  plans.push_back(drawn_plans::planned(false, 1, queue_style::per_direction));
  return plans;
}

/// What is wrong with `text` as XML of elements, attributes and character data; empty if nothing is.
std::string xml_fault(std::string_view text) {
  std::vector<std::string> open;
  bool seen = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::string near = " near byte " + std::to_string(i);
    if (text[i] == '&' || text[i] == '>') return "bare character" + near;
    if (text[i] != '<') {
      if (open.empty() && std::isspace(static_cast<unsigned char>(text[i])) == 0) return "text outside" + near;
      ++i;
      continue;
    }
    const std::size_t end = text.find('>', i);
    if (end == std::string_view::npos) return "open tag" + near;
    std::string_view tag = text.substr(i + 1, end - i - 1);
    i = end + 1;
    if (!tag.empty() && tag.front() == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return "wrong closing tag" + near;
      open.pop_back();
      continue;
    }
    const bool closes = !tag.empty() && tag.back() == '/';
    if (closes) tag.remove_suffix(1);
    const std::size_t name_end = std::min(tag.find(' '), tag.size());
    const std::string name{tag.substr(0, name_end)};
    if (name.empty() || tag.find('<') != std::string_view::npos) return "bad tag" + near;
    if (open.empty() && seen) return "second root" + near;
    seen = true;
    std::set<std::string> names;
    for (std::string_view rest = tag.substr(name_end); rest.find_first_not_of(' ') != std::string_view::npos;) {
      rest.remove_prefix(rest.find_first_not_of(' '));
      const std::size_t equals = rest.find("=\"");
      if (equals == std::string_view::npos || equals == 0) return "bad attribute" + near;
      const std::size_t quote = rest.find('"', equals + 2);
      if (quote == std::string_view::npos) return "open attribute" + near;
      if (!names.insert(std::string{rest.substr(0, equals)}).second) return "attribute twice" + near;
      rest.remove_prefix(quote + 1);
    }
    if (!closes) open.push_back(name);
  }
  if (!seen) return "no element";
  return open.empty() ? "" : "never closed: " + open.back();
}

}  // namespace

TEST_CASE("a trace has one event for each computation and each end of a transfer, at its exact time") {
  for (const plan& p : some_plans()) {
    const json trace = json::parse(chrome_trace(p));
    using event = std::tuple<std::size_t, std::size_t, std::string, std::int64_t, std::int64_t>;
    std::multiset<event> expected;
    for (std::size_t r = 0; r < p.replicas.size(); ++r)
      for (std::size_t d = 0; d < p.replicas[r].devices.size(); ++d)
        for (const instruction& i : p.replicas[r].devices[d].instructions)
          if (i.op == opcode::forward || i.op == opcode::backward || i.op == opcode::send || i.op == opcode::recv)
            expected.insert({r, d, std::string{to_string(i.op)}, i.start.value(), (i.end - i.start).value()});
    std::map<std::pair<std::int64_t, std::int64_t>, std::string> tracks;
    for (const json& e : trace.at("traceEvents"))
      if (e.at("ph") == "M" && e.at("name") == "thread_name")
        tracks[{e.at("pid"), e.at("tid")}] = e.at("args").at("name").get<std::string>();
    std::multiset<event> found;
    for (const json& e : trace.at("traceEvents")) {
      if (e.at("ph") != "X") continue;
      // "device D ..." names the device of a track.
      const std::string& name = tracks.at({e.at("pid"), e.at("tid")});
      REQUIRE(name.rfind("device ", 0) == 0);
      const std::size_t device = std::stoul(name.substr(7));
      found.insert({e.at("pid"), device, e.at("cat"), in_ns(e.at("ts")), in_ns(e.at("dur"))});
    }
    CHECK(found == expected);
    CHECK(!expected.empty());
  }
}

TEST_CASE("every send's arrow leads to its receive") {
  for (const plan& p : some_plans()) {
    const json trace = json::parse(chrome_trace(p));
    std::map<std::string, const json*> starts;
    std::map<std::string, const json*> ends;
    for (const json& e : trace.at("traceEvents")) {
      const std::string phase = e.at("ph");
      if (phase == "s") CHECK(starts.emplace(e.at("id"), &e).second);
      if (phase == "f") CHECK(ends.emplace(e.at("id"), &e).second);
    }
    std::size_t sends = 0;
    for (const replica_plan& replica : p.replicas)
      for (const device_plan& device : replica.devices)
        sends += static_cast<std::size_t>(std::count_if(device.instructions.begin(), device.instructions.end(),
                                                        [](const instruction& i) { return i.op == opcode::send; }));
    CHECK(starts.size() == sends);
    CHECK(ends.size() == sends);
    for (const auto& [id, start] : starts) {
      CAPTURE(id);
      REQUIRE(ends.count(id) == 1);
      const json& end = *ends.at(id);
      CHECK(start->at("pid") == end.at("pid"));
      CHECK(start->at("tid") != end.at("tid"));
      CHECK(start->at("name") == end.at("name"));
      CHECK(start->at("cat") == end.at("cat"));
      CHECK(in_ns(start->at("ts")) <= in_ns(end.at("ts")));
      CHECK(end.at("bp") == "e");
    }
  }
}

TEST_CASE("events of one track do not overlap: viewers drop those that do") {
  for (const plan& p : some_plans()) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::pair<std::int64_t, std::int64_t>>> tracks;
    const json trace = json::parse(chrome_trace(p));
    for (const json& e : trace.at("traceEvents"))
      if (e.at("ph") == "X")
        tracks[{e.at("pid"), e.at("tid")}].emplace_back(in_ns(e.at("ts")), in_ns(e.at("ts")) + in_ns(e.at("dur")));
    std::size_t overlaps = 0;
    for (auto& [track, events] : tracks) {
      std::sort(events.begin(), events.end());
      for (std::size_t i = 1; i < events.size(); ++i)
        overlaps += events[i].first < events[i - 1].second ? 1 : 0;
    }
    CAPTURE(to_string(p.pipeline.queues));
    CHECK(overlaps == 0);
  }
}

TEST_CASE("times in a trace are exact where a double is not") {
  plan p = drawn_plans::two_by_two();
  instruction& last = p.replicas[0].devices[0].instructions.back();
  last.start = nanoseconds{9'007'199'254'740'993};
  last.end = nanoseconds{9'007'199'254'741'998};
  const std::string text = chrome_trace(p);
  CHECK(text.find("\"ts\":9007199254740.993,\"dur\":1.005,") != std::string::npos);
  CHECK(text.find("\"name\":\"F0 s0\"") != std::string::npos);
  CHECK(text.find("\"name\":\"I0 s1\"") != std::string::npos);
  CHECK(text.find("\"name\":\"W0 s1\"") != std::string::npos);
  CHECK(text.find("\"name\":\"B1 s1\"") != std::string::npos);
}

TEST_CASE("traces of the same plan are the same bytes") {
  const plan p = drawn_plans::planned(true, 12, queue_style::per_peer);
  CHECK(chrome_trace(p) == chrome_trace(p));
  CHECK(json::parse(chrome_trace(plan{})).at("traceEvents").empty());
}

TEST_CASE("the drawing is well-formed, with a box for each computation") {
  CHECK(xml_fault("<a b=\"1\"><c/>x</a>\n").empty());
  for (const char* bad : {"<a>", "<a></b>", "<a/><b/>", "<a b=1/>", "<a b=\"1\" b=\"2\"/>", "<a>&</a>", "x<a/>", "<a"})
    CHECK_FALSE(xml_fault(bad).empty());
  std::vector<plan> plans = some_plans();
  plans.push_back(drawn_plans::two_by_two());
  plans.emplace_back();
  for (const plan& p : plans) {
    const std::string svg = timeline_svg(p);
    CHECK(xml_fault(svg) == "");
    CHECK(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0) == 0);
    std::size_t computations = 0;
    for (const replica_plan& replica : p.replicas)
      for (const device_plan& device : replica.devices)
        for (const instruction& i : device.instructions)
          computations += computes(i.op) ? 1 : 0;
    CHECK(count(svg, "<title>") == computations);
    CHECK(count(svg, "nan") == 0);
    CHECK(count(svg, "inf") == 0);
  }
}

TEST_CASE("the drawing's boxes by hand") {
  const std::string svg = timeline_svg(drawn_plans::two_by_two());
  // 80 ms on 1,200 units from 110 on: a backward from 40 to 60 ms begins at 710 and is 300 wide.
  CHECK(svg.find("<rect x=\"710.00\" y=\"40\" width=\"300.00\"") != std::string::npos);
  CHECK(svg.find("<title>B0 stage 0: 1 x 8, 40.000 to 60.000 ms</title>") != std::string::npos);
  CHECK(svg.find("80.000 ms predicted, lower bound 64.000 ms") != std::string::npos);
  CHECK(svg.find("<line x1=\"1070.00\" x2=\"1070.00\"") != std::string::npos);
}
