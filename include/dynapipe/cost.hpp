#pragma once

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/calibration.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/counts.hpp>
#include <dynapipe/cost/flops.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/layer_sizes.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/parameters.hpp>
#include <dynapipe/cost/shape.hpp>
#include <dynapipe/cost/split.hpp>
#include <dynapipe/cost/stage.hpp>
#include <dynapipe/cost/stage_costs.hpp>
#include <dynapipe/cost/transfer.hpp>
