#include "costs.hpp"

#include <filesystem>

#include <fmt/format.h>

#include <dynapipe/core/error.hpp>
#include <dynapipe/ext/csv_profile.hpp>
#include <dynapipe/ext/fit.hpp>
#include <dynapipe/ext/json_costs.hpp>
#include <dynapipe/ext/json_profile.hpp>

#include "arguments.hpp"

namespace command {

namespace {

/// Refuses a profile that is of another layer than the model's.
void require_same_layer(const std::string& path, const dynapipe::profile& p, const dynapipe::model_spec& model) {
  const auto differ = [&](const char* field, auto measured, auto wanted) {
    if (measured != wanted)
      throw dynapipe::error{fmt::format("{}: it measured a layer with {} {}, model '{}' has {}", path, field, measured,
                                        model.name, wanted)};
  };
  if (p.hidden == 0) return;
  differ("hidden", p.hidden, model.hidden);
  differ("heads", p.heads, model.heads);
  differ("kv_heads", p.kv_heads, model.kv_heads);
  differ("ffn", p.ffn, model.ffn);
  differ("gated", p.gated, model.gated);
}

void require_same_run(const std::string& path, std::int64_t tensor_parallel, dynapipe::dtype type,
                      const dynapipe::planner_options& options, const dynapipe::model_spec& model) {
  if (tensor_parallel != options.tensor)
    throw dynapipe::error{
        fmt::format("{}: it was measured with tensor_parallel {}, --tp is {}", path, tensor_parallel, options.tensor)};
  if (dynapipe::size_of(type) != dynapipe::size_of(model.type))
    throw dynapipe::error{fmt::format("{}: it was measured in {}, model '{}' is in {}", path, dynapipe::to_string(type),
                                      model.name, dynapipe::to_string(model.type))};
}

}  // namespace

void add_costs(CLI::App& app, cost_arguments& arguments, dynapipe::planner_options& options) {
  auto* profile = app.add_option("--profile", arguments.profile,
                                 "Measured costs: a profile (JSON), or CSV tables by their NAME_time.csv[.gz]");
  app.add_option("--costs", arguments.costs, "Fitted costs, as `dynapipe fit` writes them")->excludes(profile);
  add_word(app, "--outside", arguments.outside, dynapipe::outside_policy_names,
           "Shapes outside of what a profile measured: refuse them, or take the fit (default error)");
  add_number(app, "--tp", options.tensor, "Tensor-parallel ranks of each device (default 1)");
  app.add_flag("--sequence-parallel", options.sequence_parallel, "Those ranks share the tokens between layers too");
  add_number(app, "--zero", arguments.zero, "ZeRO stage over the replicas, 0..3 (default 0)");
}

dynapipe::profile read_profile(const std::string& path, std::int64_t tensor_parallel,
                               const dynapipe::model_spec& model) {
  if (path.ends_with(".csv") || path.ends_with(".csv.gz"))
    return dynapipe::load_profile_csv(path, tensor_parallel, model);
  return dynapipe::load_profile(path);
}

chosen_costs choose_costs(const cost_arguments& arguments, const dynapipe::model_spec& model,
                          const dynapipe::cluster_spec& cluster, const dynapipe::planner_options& options) {
  const dynapipe::analytic_cost roofline{model,
                                         cluster,
                                         {.tensor_parallel = options.tensor,
                                          .sequence_parallel = options.sequence_parallel,
                                          .zero = arguments.zero,
                                          .data_parallel = options.data}};
  std::vector<std::pair<std::string, std::string>> provenance;
  if (arguments.zero > 0) provenance.emplace_back("zero", std::to_string(arguments.zero));
  const auto named = [&](const char* flag, const std::string& path) {
    provenance.emplace_back(flag, std::filesystem::path{path}.filename().string());
  };
  if (!arguments.profile.empty()) {
    const dynapipe::profile measured = read_profile(arguments.profile, options.tensor, model);
    require_same_layer(arguments.profile, measured, model);
    require_same_run(arguments.profile, measured.tensor_parallel, measured.type, options, model);
    const dynapipe::fitted_costs fitted = dynapipe::fit(measured);
    dynapipe::table_cost table{
        measured, dynapipe::fitted_cost{fitted, {.rest = roofline}}, {.outside = arguments.outside}};
    named("profile", arguments.profile);
    provenance.emplace_back("outside", std::string{dynapipe::to_string(arguments.outside)});
    if (!table.holes().empty()) provenance.emplace_back("filled_points", std::to_string(table.holes().size()));
    return {dynapipe::with_links(cluster, fitted), any_cost{std::move(table)}, std::move(provenance)};
  }
  if (!arguments.costs.empty()) {
    const dynapipe::fitted_costs fitted = dynapipe::load_costs(arguments.costs);
    require_same_run(arguments.costs, fitted.tensor_parallel, fitted.type, options, model);
    named("costs", arguments.costs);
    return {dynapipe::with_links(cluster, fitted), any_cost{dynapipe::fitted_cost{fitted, {.rest = roofline}}},
            std::move(provenance)};
  }
  return {cluster, any_cost{roofline}, std::move(provenance)};
}

}  // namespace command
