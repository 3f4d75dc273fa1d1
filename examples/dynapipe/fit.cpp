#include <iostream>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include <dynapipe/core/error.hpp>
#include <dynapipe/ext/files.hpp>
#include <dynapipe/ext/fit.hpp>
#include <dynapipe/ext/fit_report.hpp>
#include <dynapipe/ext/json_costs.hpp>

#include "arguments.hpp"
#include "commands.hpp"
#include "costs.hpp"

namespace command {

namespace {

struct fit_arguments {
  std::string profile;
  std::optional<std::int64_t> tensor;
  std::string model;
  std::string out;
  std::string plot;
  bool json = false;
  dynapipe::fit_options options;
};

void run_fit(const fit_arguments& a) {
  if (a.options.degree != 2 && a.options.degree != 3)
    throw dynapipe::error{"--degree must be 2 or 3, it is " + std::to_string(a.options.degree)};
  const dynapipe::model_spec model = a.model.empty() ? dynapipe::model_spec{} : model_of(a.model);
  const dynapipe::profile measured = read_profile(a.profile, a.tensor.value_or(1), model);
  if (a.tensor && measured.tensor_parallel != *a.tensor)
    throw dynapipe::error{a.profile + ": it was measured with tensor_parallel " +
                          std::to_string(measured.tensor_parallel) + ", --tp is " + std::to_string(*a.tensor)};
  const dynapipe::fitted_costs costs = dynapipe::fit(measured, a.options);
  const std::string text = dynapipe::to_json_text(costs);
  std::list<dynapipe::staged_file> files;
  if (!a.out.empty()) files.emplace_back(a.out, text);
  if (!a.plot.empty()) files.emplace_back(a.plot, dynapipe::fit_svg(measured, costs));
  for (dynapipe::staged_file& file : files)
    file.commit();
  std::cout << (a.json ? text : dynapipe::fit_table(costs));
}

}  // namespace

void add_fit(CLI::App& app, int&) {
  CLI::App* fit = app.add_subcommand("fit", "Fit cost curves to a measured profile");
  const auto arguments = std::make_shared<fit_arguments>();
  fit_arguments& a = *arguments;
  fit->add_option("profile", a.profile, "A profile (JSON), or CSV tables by their NAME_time.csv[.gz]")->required();
  add_number(*fit, "--tp", a.tensor, "Tensor-parallel ranks to take of CSV tables (default 1)");
  fit->add_option("--model", a.model, "Model that CSV tables measured a layer of: preset, or JSON file");
  add_number(*fit, "--degree", a.options.degree, "Highest order of the length in times, 2 or 3 (default 3)");
  fit->add_option("-o,--out", a.out, "Costs file to write, for --costs");
  fit->add_option("--plot", a.plot, "SVG drawing of points and curves");
  fit->add_flag("--json", a.json, "Print the costs file instead of the table");
  fit->callback([arguments] { run_fit(*arguments); });
}

}  // namespace command
