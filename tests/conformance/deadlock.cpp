#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <dynapipe/comm/deadlock.hpp>
#include <dynapipe/comm/rank_program.hpp>
#include <dynapipe/core/error.hpp>

#include "kinds.hpp"

namespace conformance {
namespace {

using dynapipe::rank_action;
using dynapipe::rank_operation;
using dynapipe::rank_program;
using nlohmann::json;

class reader {
 public:
  explicit reader(const json& ranks) {
    if (!ranks.is_array()) throw dynapipe::error{"ranks is no list"};
    for (const json& list : ranks) {
      if (!list.is_array()) throw dynapipe::error{"rank " + std::to_string(programs.size()) + " is no list"};
      programs.emplace_back();
      for (const json& position : list)
        read_position(position);
    }
    for (std::size_t r = 0; r < programs.size(); ++r)
      infer_source(r);
  }

  std::vector<rank_program> programs;
  std::vector<std::string> labels;

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw dynapipe::error{"rank " + std::to_string(programs.size() - 1) + " op " +
                          std::to_string(programs.back().size()) + ": " + what};
  }

  void read_position(const json& position) {
    if (!position.is_array()) {
      programs.back().push_back(read_op(position));
      return;
    }
    if (position.empty()) fail("an empty group");
    for (std::size_t i = 0; i < position.size(); ++i) {
      const rank_operation op = read_op(position[i]);
      programs.back().push_back(i == 0 ? op : op.in_group());
    }
  }

  [[nodiscard]] std::int64_t integer(const json& op, const char* field) const {
    const auto found = op.find(field);
    if (found == op.end()) fail(std::string{field} + " is missing");
    const bool too_large = found->is_number_unsigned() && found->get<std::uint64_t>() > INT64_MAX;
    if (!found->is_number_integer() || too_large) fail(std::string{field} + " is no integer: " + found->dump());
    return found->get<std::int64_t>();
  }

  rank_operation read_op(const json& op) {
    if (!op.is_object()) fail("no operation: " + op.dump());
    const json action = op.value("op", json{});
    const bool sends = action == "send";
    if (!sends && action != "recv" && action != "compute") fail("op is " + action.dump());
    const json id = op.value("id", json{});
    if (!id.is_string() && !id.is_number_integer() && !(id.is_null() && action == "compute"))
      fail("id is no text: " + id.dump());
    const std::string label = id.is_string() ? id.get<std::string>() : id.is_null() ? "" : id.dump();
    const auto [known, is_new] = ids_.emplace(label, labels.size());
    if (is_new) labels.push_back(label);
    if (action == "compute") return rank_operation::compute(known->second);
    const std::int64_t peer = integer(op, "peer");
    if (peer < 0 || peer > INT32_MAX) fail("peer is no rank: " + std::to_string(peer));
    const dynapipe::device_id other = dynapipe::to_id<dynapipe::device_id>(static_cast<std::size_t>(peer));
    const dynapipe::bytes size{integer(op, "bytes")};
    return sends ? rank_operation::send(other, known->second, size) : rank_operation::recv(other, known->second, size);
  }

  /// A case does not say what a send carries. One thing can be told: a rank that starts with a group which takes from
  /// one rank and passes on to another, and computes only after it, had nothing to pass on before. What it sends is
  /// made by the computation after the group. (Where the other ranks group too, all of them shift what they already
  /// had: a ring.)
  void infer_source(std::size_t rank) {
    rank_program& list = programs[rank];
    const auto grouped = [](const rank_operation& op) { return op.grouped; };
    std::size_t members = 1;
    while (members < list.size() && list[members].grouped)
      ++members;
    if (members >= list.size() || list[members].action != rank_action::compute) return;
    const auto end = list.begin() + static_cast<std::ptrdiff_t>(members);
    for (auto op = list.begin(); op != end; ++op) {
      if (op->action == rank_action::compute || dynapipe::index(op->peer) >= programs.size()) return;
      const rank_program& other = programs[dynapipe::index(op->peer)];
      if (std::any_of(other.begin(), other.end(), grouped)) return;
    }
    for (auto op = list.begin(); op != end; ++op) {
      const bool relays = op->action == rank_action::send && std::any_of(list.begin(), end, [&](const auto& from) {
                            return from.action == rank_action::recv && from.peer != op->peer;
                          });
      if (relays) op->made_by = static_cast<std::int32_t>(members);
    }
  }

  std::unordered_map<std::string, std::uint64_t> ids_;
};

}  // namespace

json deadlock(const json& test_case, const options&) {
  if (!test_case.is_object() || !test_case.contains("ranks")) throw dynapipe::error{"ranks is missing"};
  const reader read{test_case.at("ranks")};
  const dynapipe::deadlock_report report = dynapipe::check_deadlock(read.programs);
  return {{"verdict", report.accepted ? "accept" : "reject"},
          {"reason", report.accepted ? "" : dynapipe::explain(read.programs, report.why, read.labels)},
          {"safe_per_pair", report.safe_per_pair},
          {"safe_per_edge", report.safe_per_edge}};
}

}  // namespace conformance
