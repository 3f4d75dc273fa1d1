#pragma once

/// Door to reading and writing of plan, model and cluster files. Needs nlohmann/json.

#include <dynapipe/ext/json_model.hpp>
#include <dynapipe/ext/json_plan.hpp>
