/// The `dynapipe` command: plans global batches from files, checks plans, and fits and shows costs.

#include <exception>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include <dynapipe/core/error.hpp>
#include <dynapipe/core/version.hpp>

#include "commands.hpp"

namespace {

constexpr const char* examples = R"(Examples:
  dynapipe plan --lengths examples/data/lengths.csv --model gpt-6.7b --cluster a100-80g --pp 4 --dp 2 \
                --batch-tokens 65536 --out plan.json --trace trace.json --draw timeline.svg
  dynapipe plan --lengths lengths.csv.gz --model my_model.json --cluster h200 --pp 8 --recompute selective \
                --all --out plans/ --summary json
  dynapipe check plan.json
  dynapipe fit h200.json -o costs.json --plot fit.svg
  dynapipe cost --model gpt-6.7b --cluster h200 --costs costs.json --shape 8x512 --shape 1x8192

Exit status: 0 done, 1 the answer is no (a plan that does not hold), 2 unusable input.)";

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

int main(int count, char** words) {
  CLI::App app{"dynapipe plans pipeline training on samples of very different lengths."};
  app.set_version_flag("--version", std::string{"dynapipe "} + dynapipe::version);
  app.footer(examples);
  app.require_subcommand(1);
  int status = 0;
  try {
    command::add_plan(app, status);
    command::add_check(app, status);
    command::add_fit(app, status);
    command::add_cost(app, status);
    try {
      app.parse(count, words);
    } catch (const CLI::Success& help) {
      status = app.exit(help);
    }
    if (!std::cout.flush()) throw dynapipe::error{"standard output cannot be written"};
    return status;
  } catch (const std::exception& problem) {
    std::cerr << "dynapipe: " << first_line(problem.what()) << '\n';
    return 2;
  }
}
