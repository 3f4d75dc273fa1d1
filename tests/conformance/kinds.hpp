#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

/// The kinds of cases that the conformance driver answers. A kind is one function in a file of its own, declared here,
/// and one line of the table in `tests/conformance.cpp`.
namespace conformance {

struct options {
  std::optional<std::int64_t> budget_ms;  ///< time for one case where a kind searches; none: the kind's default
};

/// Answers one case. Throws `dynapipe::infeasible` or `dynapipe::unsatisfiable` where no answer exists, and
/// `dynapipe::error` or a JSON exception where the case is malformed.
using kind_function = nlohmann::json (*)(const nlohmann::json& test_case, const options& how);

nlohmann::json cost(const nlohmann::json& test_case, const options& how);
nlohmann::json deadlock(const nlohmann::json& test_case, const options& how);
nlohmann::json pack(const nlohmann::json& test_case, const options& how);
nlohmann::json partition(const nlohmann::json& test_case, const options& how);
nlohmann::json schedule(const nlohmann::json& test_case, const options& how);

}  // namespace conformance
