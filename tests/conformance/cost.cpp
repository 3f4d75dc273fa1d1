#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <dynapipe/core.hpp>
#include <dynapipe/cost/table.hpp>
#include <dynapipe/ext/fit.hpp>
#include <dynapipe/ext/json_profile.hpp>

#include "kinds.hpp"

namespace conformance {

namespace {

using dynapipe::cost_amount;
using nlohmann::json;

enum class asked_model { table, fit };
constexpr dynapipe::name_table<asked_model, 2> asked_model_names{
    {{asked_model::table, "table"}, {asked_model::fit, "fit"}}};

/// A case as the text of a profile. A case may leave out what a profile must say of itself; its points may leave out
/// their recomputation, which is none.
json profile_text(const json& test_case) {
  json text = {{"format", "dynapipe.profile"}, {"version", 1},    {"device", "this case"}, {"dtype", "bf16"},
               {"tensor_parallel", 1},         {"layer", nullptr}};
  json points = test_case.value("points", json{});
  for (json& point : points) {
    if (!point.is_object()) continue;
    if (!point.contains("recompute")) point["recompute"] = "none";
    if (point.contains("device") && text["device"] == "this case") text["device"] = point["device"];
  }
  for (const char* key : {"device", "dtype", "tensor_parallel", "layer", "parameters_bytes", "links"})
    if (test_case.contains(key)) text[key] = test_case[key];
  if (test_case.contains("points")) text["points"] = std::move(points);
  return text;
}

dynapipe::profile profile_of(const json& test_case) {
  const std::string name = "case";
  const json text = profile_text(test_case);
  dynapipe::profile measured = dynapipe::json_detail::read_profile({text, name, false});
  dynapipe::require_sound(measured, name);
  return measured;
}

/// A query as a point without a measurement, which may be as large as one.
dynapipe::profile_point read_query(const dynapipe::json_detail::reader& in, const std::string& name) {
  in.allow_only({"kind", "recompute", "rows", "input", "target", "tokens", "squares", "samples", "target_tokens",
                 "target_squares", "cross_pairs"});
  dynapipe::profile one;
  dynapipe::profile_point& query = one.points.emplace_back();
  query.kind = in["kind"].word(dynapipe::layer_kind_names);
  if (const auto recompute = in.find("recompute")) query.recompute = recompute->word(dynapipe::recompute_names);
  dynapipe::json_detail::read_shape(in, query);
  query.forward = query.backward = dynapipe::nanoseconds{1};
  dynapipe::detail::profile_check<>{one, name}.point(0);
  return query;
}

/// What answers the queries of one case.
class answers {
 public:
  answers(const dynapipe::profile& measured, asked_model asked, const dynapipe::table_options& options, int degree)
      : fit_{dynapipe::fit(measured, {.degree = degree})}, outside_{options.outside} {
    if (asked == asked_model::table) table_.emplace(measured, fit_, options);
  }

  [[nodiscard]] json to(const dynapipe::profile_point& query) const {
    if (fit_.costs().of(query.kind, query.recompute).seen == dynapipe::seen_range{})
      return {{"error", "no point is a " + std::string{dynapipe::to_string(query.kind)} + " with recompute " +
                            std::string{dynapipe::to_string(query.recompute)}}};
    if (query.varlen) return by(fit_, query.packed, query);
    if (!table_) return by(fit_, query.padded, query);
    json value = by(*table_, query.padded, query);
    if (!value.contains("infeasible") && !value.contains("error") && is_hole(query)) value["filled"] = true;
    return value;
  }

 private:
  template <class Model, class Shape>
  [[nodiscard]] json by(const Model& model, const Shape& s, const dynapipe::profile_point& query) const {
    const bool extrapolates = model.extrapolates(query.kind, s, query.recompute);
    const auto& curves = fit_.costs().of(query.kind, query.recompute);
    dynapipe::detail::profile_amounts amounts{};
    for (const auto& [amount, name] : dynapipe::cost_amount_names) {
      if (!curves.of(amount).known) continue;
      const std::int64_t value = model.value(amount, query.kind, s, query.recompute);
      if (value == dynapipe::int64_limit) return refused(model, s, query, extrapolates);
      amounts[static_cast<std::size_t>(amount)] = value;
    }
    keep_parts_below_wholes(amounts);
    json value;
    for (const auto& [amount, name] : dynapipe::cost_amount_names)
      value[std::string{name}] = amounts[static_cast<std::size_t>(amount)];
    if (extrapolates) value["extrapolated"] = true;
    return value;
  }

  template <class Model, class Shape>
  [[nodiscard]] json refused(const Model& model, const Shape& s, const dynapipe::profile_point& query,
                             bool extrapolates) const {
    const std::string why = dynapipe::refusal(model, query.kind, s, query.recompute);
    if (std::same_as<Model, dynapipe::table_cost> && extrapolates && outside_ == dynapipe::outside_policy::error)
      return {{"error", why}};
    return {{"infeasible", why.empty() ? "its costs are beyond the largest 64-bit integer" : why}};
  }

  static void keep_parts_below_wholes(dynapipe::detail::profile_amounts& amounts) {
    const auto of = [&](cost_amount amount) -> std::int64_t& { return amounts[static_cast<std::size_t>(amount)]; };
    of(cost_amount::weight) = std::min(of(cost_amount::weight), of(cost_amount::backward));
    of(cost_amount::weight_stored) = std::min(of(cost_amount::weight_stored), of(cost_amount::stored));
    if (of(cost_amount::forward_peak) > 0)
      of(cost_amount::forward_peak) = std::max(of(cost_amount::forward_peak), of(cost_amount::stored));
  }

  [[nodiscard]] bool is_hole(const dynapipe::profile_point& query) const {
    namespace detail = dynapipe::detail;
    const dynapipe::table_remark here{query.kind, query.recompute,
                                      detail::shape_at(query.kind, detail::grid_point_of(query.kind, query.padded))};
    return std::find(table_->holes().begin(), table_->holes().end(), here) != table_->holes().end();
  }

  dynapipe::fitted_cost fit_;
  std::optional<dynapipe::table_cost> table_;
  dynapipe::outside_policy outside_;
};

}  // namespace

json cost(const json& test_case, const options&) {
  const std::string name = "case";
  const dynapipe::json_detail::reader in{test_case, name, false};
  const auto asked = in.find("model");
  dynapipe::table_options table;
  if (const auto outside = in.find("outside")) table.outside = outside->word(dynapipe::outside_policy_names);
  if (const auto monotone = in.find("monotone")) table.monotone = monotone->boolean();
  std::vector<dynapipe::profile_point> queries;
  for (const auto list = in["queries"]; queries.size() < list.size();)
    queries.push_back(
        read_query(list.element(queries.size()), name + ": queries[" + std::to_string(queries.size()) + "]"));
  // Shapes without padding have no price under terms of third order.
  const bool any_varlen = std::any_of(queries.begin(), queries.end(), [](const auto& query) { return query.varlen; });
  const answers model{profile_of(test_case), asked ? asked->word(asked_model_names) : asked_model::table, table,
                      any_varlen ? 2 : dynapipe::fit_options{}.degree};
  json values = json::array();
  for (const dynapipe::profile_point& query : queries)
    values.push_back(model.to(query));
  return {{"values", std::move(values)}};
}

}  // namespace conformance
