#pragma once

#include <CLI/CLI.hpp>

/// The subcommands of `dynapipe`: each adds its arguments to the application and sets `status` when it has run.

namespace command {

/// Exit status: 0 done, 1 the answer is no, 2 unusable input.
void add_plan(CLI::App& app, int& status);
void add_check(CLI::App& app, int& status);
void add_fit(CLI::App& app, int& status);
void add_cost(CLI::App& app, int& status);

}  // namespace command
