#pragma once

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/parameters.hpp>
#include <dynapipe/cost/shape.hpp>
#include <dynapipe/cost/stage.hpp>
#include <dynapipe/cost/stage_costs.hpp>
