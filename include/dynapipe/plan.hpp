#pragma once

#include <dynapipe/plan/lower.hpp>
#include <dynapipe/plan/options.hpp>
#include <dynapipe/plan/pipeline_costs.hpp>
#include <dynapipe/plan/plan.hpp>
#include <dynapipe/plan/planner.hpp>
#include <dynapipe/plan/sync.hpp>
#include <dynapipe/plan/validate.hpp>
#include <dynapipe/plan/validate_batch.hpp>
#include <dynapipe/plan/validate_memory.hpp>
#include <dynapipe/plan/validate_program.hpp>
#include <dynapipe/plan/validate_time.hpp>
#include <dynapipe/plan/violation.hpp>
