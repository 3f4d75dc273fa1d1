#pragma once

#include <dynapipe/plan/lower.hpp>
#include <dynapipe/plan/options.hpp>
#include <dynapipe/plan/pipeline_costs.hpp>
#include <dynapipe/plan/plan.hpp>
#include <dynapipe/plan/planner.hpp>
#include <dynapipe/plan/sync.hpp>
