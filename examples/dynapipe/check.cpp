#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <dynapipe/core/error.hpp>
#include <dynapipe/ext/json.hpp>
#include <dynapipe/ext/report.hpp>
#include <dynapipe/plan/validate.hpp>

#include "commands.hpp"

namespace command {

namespace {

/// Judges one file and prints the verdict; returns the exit status it calls for.
int check_file(const std::string& path) {
  try {
    const dynapipe::plan p = dynapipe::load_plan(path);
    const std::vector<dynapipe::violation> faults = dynapipe::validate(p);
    for (const dynapipe::violation& fault : faults)
      std::cout << path << ": FAULT: " << fault.where << (fault.where.empty() ? "" : ": ") << fault.what << '\n';
    if (!faults.empty()) return 1;
    const dynapipe::plan_summary s = dynapipe::summarize(p);
    std::cout << fmt::format("{}: holds: {} samples, {} replicas, {} micro-batches, {:.3f} ms, bound gap {:.2f} %\n",
                             path, p.lengths.size(), p.replicas.size(), s.micro_batches,
                             static_cast<double>(p.predicted.value()) / 1e6, 100 * s.gap());
    return 0;
  } catch (const dynapipe::malformed_plan& problem) {
    std::cout << path << ": FAULT: malformed plan: " << problem.what() << '\n';
    return 1;
  } catch (const dynapipe::error& problem) {
    std::cerr << "dynapipe: " << problem.what() << '\n';
    return 2;
  }
}

}  // namespace

void add_check(CLI::App& app, int& status) {
  CLI::App* check = app.add_subcommand("check", "Replay plans and say whether they hold");
  const auto files = std::make_shared<std::vector<std::string>>();
  check->add_option("plans", *files, "Plan files")->required();
  check->callback([files, &status] {
    for (const std::string& file : *files)
      status = std::max(status, check_file(file));
  });
}

}  // namespace command
