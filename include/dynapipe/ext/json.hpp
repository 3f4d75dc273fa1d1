#pragma once

/// Door to reading and writing of plan, profile, model, cluster and calibration files. Needs nlohmann/json.

#include <dynapipe/ext/json_calibration.hpp>
#include <dynapipe/ext/json_model.hpp>
#include <dynapipe/ext/json_plan.hpp>
#include <dynapipe/ext/json_profile.hpp>
